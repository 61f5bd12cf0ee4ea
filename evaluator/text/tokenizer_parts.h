// What the descriptions of a tokenizer.json's parts have in common: steps in a Sequence, and
// patterns.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "store/base/result.h"

namespace evalcar::text {

/// The steps of a description in their order, what stands in a Sequence's list `list` among them
/// (Sequences in Sequences, too); `part` names it in errors. They point into `description`.
/// kCorruption for a Sequence without its list, and where they are nested too deep or too many.
Result<std::vector<const nlohmann::json*>> steps_of(const nlohmann::json& description,
                                                    const char* part, const char* list);

/// A {"String": …} or {"Regex": …}.
struct PatternText {
  std::string text;
  bool is_regex = false;
};

/// The "pattern" of a Split or a Replace; `part` names it in errors. kCorruption where it is
/// neither, or both.
Result<PatternText> pattern_of(const nlohmann::json& description, const char* part);

}  // namespace evalcar::text
