// A config.json as a merged folder has it: with the dtype of the cast, and without ties that were
// given up. Everything else stays byte for byte.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "store/base/result.h"
#include "store/checkpoint/tie_config.h"

namespace evalcar::checkpoint {

/// Sets `dtype` where the model and its parts name theirs (both spellings, transformers 4:
/// torch_dtype, 5: dtype), not where a method does that means something else by it
/// (quantization_config, compression_config); and has the flags say that nothing is tied, also
/// where one that `is_needed` said nothing. `text`: a JSON object, which may hold Python's NaN and
/// Infinity. Takes time and memory by its size alone. kCorruption where it is no JSON object.
Result<std::string> edit_config(std::string_view text, const std::string& where,
                                const std::optional<std::string>& dtype,
                                std::span<const TieFlag> given_up);

}  // namespace evalcar::checkpoint
