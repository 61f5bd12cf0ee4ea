// What one logged sample was worth: the number behind a metric, out of lmms-eval's line of a
// sample.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace evalcar::report {

/// The sample's own value of `metric`: a number, a truth value, an object's "score", or for MMMU
/// whether its parsed answer agrees with the expected one. Absent: the line does not tell it, or
/// not as a finite number.
std::optional<double> sample_score(const nlohmann::json& line, const std::string& metric);

/// Whether a score counts as right: at least half of the most that a question gives (ANLS' own
/// threshold; the VQA score of two of three people). Where less is better (an error rate, a loss):
/// at most one half.
bool counts_as_right(double score, bool higher_is_better);

/// The model's answer and the expected one of a line as people read them: texts as they are, lists
/// joined by " | ", anything else as JSON; at most `most_bytes`, cut between characters with "…".
std::string answer_text(const nlohmann::json& value, std::size_t most_bytes);

}  // namespace evalcar::report
