// `evalcar results --compare A B`: two steps of each series, with a paired test over their samples
// and the samples that flipped.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "store/base/result.h"
#include "store/state/reader.h"

namespace evalcar::cli {

/// "anls", or "exact_match,strict" where a filter made it.
std::string metric_name(const state::MetricRow& row);

/// One object for each series that has both steps, in the order of task, metric and kind; where
/// the two were measured with other settings there is nothing to compare. "stderr"
/// is that of the difference: of the pairs where every sample has a partner, else as of two
/// independent numbers, which is larger; "stderr_of" says which. Samples are compared as in
/// report/comparison.h: "test", "p", "pairs", "groups" (of questions about the same pictures, which
/// the test takes as one), "became_right", "became_wrong", "flipped", "note". There is a test only
/// where the samples make up the number and each has its partner.
Result<nlohmann::ordered_json> compare_steps(const state::Reader& reader,
                                             const std::vector<state::MetricRow>& rows,
                                             std::int64_t step_a, std::int64_t step_b);

/// The series that have both steps, and of two settings: "docvqa_val anls regular".
std::vector<std::string> not_comparable(const std::vector<state::MetricRow>& rows,
                                        std::int64_t step_a, std::int64_t step_b);

/// A comparison for people: one table of the series, one of the flipped samples (the first 20 of
/// each series); "" for none.
std::string comparison_tables(const nlohmann::ordered_json& list);

/// Members that are lists go: a line of CSV has no place for them.
void drop_lists(nlohmann::ordered_json& list);

}  // namespace evalcar::cli
