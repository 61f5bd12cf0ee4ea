// What a config.json says of a model at its top and in its parts: the few keys that tell of which
// family its tensors are, and how many of them there have to be.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "store/base/result.h"

namespace evalcar::checkpoint {

/// The whole model's own keys, or those of a part of it. Of a type that was not expected, a key
/// counts as absent.
struct ConfigPart {
  bool is_there = false;
  bool is_quantized = false;       ///< has a quantization_config
  std::string model_type;          ///< "": it says none
  std::optional<bool> has_biases;  ///< attention_bias
  std::optional<bool> is_tied;     ///< tie_word_embeddings
  /// Of layers, heads, experts, sizes; those that it states.
  std::map<std::string, std::uint64_t, std::less<>> numbers;

  std::optional<std::uint64_t> number(std::string_view key) const;
};

struct ModelConfig {
  ConfigPart whole;
  ConfigPart text;   ///< text_config
  ConfigPart tower;  ///< vision_config
  /// One of `architectures` is a class that generates text.
  bool generates = false;
};

/// Keeps of a text what ModelConfig has, so that a file of any form costs no more than its own
/// text. kCorruption where it is no JSON; `where` names it.
Result<ModelConfig> parse_model_config(std::string_view text, const std::string& where);

}  // namespace evalcar::checkpoint
