// What the Qwen-VL families' files have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evaluator/models/config_fields.h"
#include "evaluator/models/decoder/config.h"
#include "store/base/result.h"

namespace evalcar::models::qwen_vl {

/// The hub's names are canonical ("model.layers.0…", "visual.…", "lm_head.weight"); the module's
/// own names (4.52 and later: "model.language_model.layers.0…", "model.visual.…") are mapped to
/// them.
std::string canonical_name(std::string_view stored);

/// How mrope_section deals the frequencies out to time, height and width.
enum class Sections {
  kBlocks,       ///< one section after the other (Qwen2-VL, Qwen2.5-VL)
  kInterleaved,  ///< in turn, time taking what is left (Qwen3-VL)
};

/// Sets the decoder's position_axis from mrope_section; kCorruption unless its sum is half the head
/// dimension. `usual`: what transformers takes where the file has none.
Status read_sections(const ConfigFields& fields, Sections sections, std::vector<std::int64_t> usual,
                     decoder::Config& text);

/// text_config, or the file itself where it is flat (transformers up to 4.51 and the hub).
Result<ConfigFields> text_fields(const ConfigFields& root);
/// vision_config; kCorruption without one.
Result<ConfigFields> vision_fields(const ConfigFields& root);

/// The tie, which may be told of in the file or in text_config, and the placeholder's id.
struct Common {
  bool tied_head = false;
  int image_token_id = 0;
};
Result<Common> read_common(const ConfigFields& root, const decoder::Config& text);

}  // namespace evalcar::models::qwen_vl
