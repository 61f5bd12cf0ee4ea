// What the Qwen-VL families' files have in common.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
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

/// The decoder of Qwen2-VL and Qwen2.5-VL: Qwen2's, with biases on queries, keys and values.
Result<decoder::Config> read_qwen2_text(const ConfigFields& fields);

/// The numbers of a model: its decoder's, its tower's, and the id of a picture's placeholder.
template <typename Vision>
struct Config {
  decoder::Config text;
  Vision vision;
  int image_token_id = 0;
};

/// text_config, or the file itself where it is flat (transformers up to 4.51 and the hub).
Result<ConfigFields> text_fields(const ConfigFields& root);
/// vision_config; kCorruption without one.
Result<ConfigFields> vision_fields(const ConfigFields& root);
/// Whether the head is tied, which the file or its text_config may say.
Result<bool> read_tie(const ConfigFields& root, const decoder::Config& text);
/// An id of the vocabulary.
Result<int> read_image_token_id(const ConfigFields& root, const decoder::Config& text);

/// Reads config.json in any of its forms: flat (transformers up to 4.51 and the hub), nested beside
/// flat (4.52 to 4.57), nested (5.x). kCorruption for absurd or contradicting numbers, kUnsupported
/// by name for what is not computed. `place` names the file in messages; `read_text` and
/// `read_vision` read what the families differ in.
template <typename Vision>
Result<Config<Vision>> read_config(const nlohmann::json& json, const std::string& place,
                                   Result<decoder::Config> (*read_text)(const ConfigFields&),
                                   Result<Vision> (*read_vision)(const ConfigFields&,
                                                                 const decoder::Config&)) {
  const ConfigFields root(json, place);
  EVALCAR_ASSIGN_OR_RETURN(const ConfigFields text, text_fields(root));
  EVALCAR_ASSIGN_OR_RETURN(const ConfigFields vision, vision_fields(root));
  Config<Vision> config;
  EVALCAR_ASSIGN_OR_RETURN(config.text, read_text(text));
  EVALCAR_ASSIGN_OR_RETURN(config.vision, read_vision(vision, config.text));
  EVALCAR_ASSIGN_OR_RETURN(config.text.tied_head, read_tie(root, config.text));
  EVALCAR_ASSIGN_OR_RETURN(config.image_token_id, read_image_token_id(root, config.text));
  return config;
}

}  // namespace evalcar::models::qwen_vl
