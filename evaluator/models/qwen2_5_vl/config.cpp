#include "evaluator/models/qwen2_5_vl/config.h"

#include <nlohmann/json.hpp>

#include "evaluator/models/config_fields.h"

namespace evalcar::models::qwen2_5_vl {
namespace {

// Far above every known model (72B: hidden 8192, 80 layers, vocabulary 152,064), and small enough
// that no product of two overflows.
constexpr std::int64_t kMostWidth = 1 << 17;
constexpr std::int64_t kMostLayers = 1024;
constexpr std::int64_t kMostHeads = 4096;
constexpr std::int64_t kMostVocabulary = 1 << 23;

Error unsupported(const ConfigFields& fields, const std::string& what) {
  return make_error(ErrorCode::kUnsupported, fields.place() + ": " + what);
}

Status require_silu(const ConfigFields& fields) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string activation, fields.text("hidden_act", "silu"));
  if (activation != "silu")
    return unsupported(fields, "hidden_act \"" + activation + "\" (known: silu)");
  return {};
}

Status require_divisible(const ConfigFields& fields, std::string_view what, std::int64_t value,
                         std::int64_t divisor) {
  if (value % divisor == 0) return {};
  return make_error(ErrorCode::kCorruption, fields.place() + ": " + std::string(what) + " (" +
                                                std::to_string(value) + " is not a multiple of " +
                                                std::to_string(divisor) + ")");
}

// rope_parameters (5.x) or rope_scaling with rope_theta beside it (4.x). "mrope" and "default" are
// two names of the same thing: three position axes, no scaling.
Status parse_rope(const ConfigFields& fields, TextConfig& text) {
  EVALCAR_ASSIGN_OR_RETURN(auto rope, fields.object("rope_parameters"));
  const bool new_form = rope.has_value();
  if (!rope) {
    EVALCAR_ASSIGN_OR_RETURN(rope, fields.object("rope_scaling"));
  }
  std::string type = "default";
  std::vector<std::int64_t> section = {16, 24, 24};
  if (rope) {
    EVALCAR_ASSIGN_OR_RETURN(const std::string old_key, rope->text("type", "default"));
    EVALCAR_ASSIGN_OR_RETURN(type, rope->text("rope_type", old_key));
    EVALCAR_ASSIGN_OR_RETURN(section, rope->integers("mrope_section", 0, kMostWidth, 3, section));
  }
  if (type != "default" && type != "mrope")
    return unsupported(fields, "rope type \"" + type + "\" (known: default, mrope)");
  const ConfigFields& theta_place = new_form && rope->has("rope_theta") ? *rope : fields;
  EVALCAR_ASSIGN_OR_RETURN(text.rope_theta, theta_place.number("rope_theta", 1.0, 1e12, 1e6));
  if (section.size() != 3 || (section[0] + section[1] + section[2]) * 2 != text.head_dim())
    return make_error(ErrorCode::kCorruption,
                      fields.place() +
                          ": mrope_section must be three numbers whose sum is half "
                          "the head dimension of " +
                          std::to_string(text.head_dim()));
  text.mrope_section = {section[0], section[1], section[2]};
  return {};
}

// Windows over the text are not computed: a model that uses them would be measured wrongly.
Status refuse_sliding_window(const ConfigFields& fields) {
  EVALCAR_ASSIGN_OR_RETURN(const bool sliding, fields.boolean("use_sliding_window", false));
  bool layer_slides = false;
  if (fields.has("layer_types")) {
    for (const auto& type : fields.json().at("layer_types"))
      layer_slides = layer_slides || type != "full_attention";
  }
  if (sliding || layer_slides)
    return unsupported(fields,
                       "sliding window attention (use_sliding_window, or a layer_types entry that "
                       "is not full_attention)");
  return {};
}

Result<TextConfig> parse_text(const ConfigFields& fields) {
  TextConfig text;
  EVALCAR_ASSIGN_OR_RETURN(text.vocab, fields.integer("vocab_size", 1, kMostVocabulary));
  EVALCAR_ASSIGN_OR_RETURN(text.hidden, fields.integer("hidden_size", 2, kMostWidth));
  EVALCAR_ASSIGN_OR_RETURN(text.intermediate,
                           fields.integer("intermediate_size", 1, kMostWidth * 8));
  EVALCAR_ASSIGN_OR_RETURN(text.layers, fields.integer("num_hidden_layers", 1, kMostLayers));
  EVALCAR_ASSIGN_OR_RETURN(text.heads, fields.integer("num_attention_heads", 1, kMostHeads));
  EVALCAR_ASSIGN_OR_RETURN(text.kv_heads,
                           fields.integer("num_key_value_heads", 1, kMostHeads, text.heads));
  EVALCAR_ASSIGN_OR_RETURN(text.rms_norm_eps, fields.number("rms_norm_eps", 0.0, 1.0, 1e-5));
  EVALCAR_RETURN_IF_ERROR(
      require_divisible(fields, "hidden_size must be divisible by twice the num_attention_heads",
                        text.hidden, 2 * text.heads));
  EVALCAR_RETURN_IF_ERROR(
      require_divisible(fields, "num_attention_heads must be divisible by num_key_value_heads",
                        text.heads, text.kv_heads));
  EVALCAR_RETURN_IF_ERROR(require_silu(fields));
  EVALCAR_RETURN_IF_ERROR(refuse_sliding_window(fields));
  EVALCAR_RETURN_IF_ERROR(parse_rope(fields, text));
  return text;
}

Result<VisionConfig> parse_vision(const ConfigFields& fields, const TextConfig& text) {
  VisionConfig vision;
  EVALCAR_ASSIGN_OR_RETURN(vision.depth, fields.integer("depth", 1, kMostLayers, 32));
  EVALCAR_ASSIGN_OR_RETURN(vision.hidden, fields.integer("hidden_size", 4, kMostWidth, 3584));
  EVALCAR_ASSIGN_OR_RETURN(vision.intermediate,
                           fields.integer("intermediate_size", 1, kMostWidth * 8, 3420));
  EVALCAR_ASSIGN_OR_RETURN(vision.heads, fields.integer("num_heads", 1, kMostHeads, 16));
  // "in_chans" on the hub, where transformers itself ignores it and takes its default.
  EVALCAR_ASSIGN_OR_RETURN(vision.channels, fields.integer("in_channels", 1, 16, 3));
  EVALCAR_ASSIGN_OR_RETURN(vision.patch, fields.integer("patch_size", 1, 256, 14));
  EVALCAR_ASSIGN_OR_RETURN(vision.temporal_patch, fields.integer("temporal_patch_size", 1, 16, 2));
  EVALCAR_ASSIGN_OR_RETURN(vision.merge, fields.integer("spatial_merge_size", 1, 16, 2));
  EVALCAR_ASSIGN_OR_RETURN(vision.window, fields.integer("window_size", 1, 1 << 16, 112));
  EVALCAR_ASSIGN_OR_RETURN(vision.out_hidden,
                           fields.integer("out_hidden_size", 1, kMostWidth, 3584));
  EVALCAR_ASSIGN_OR_RETURN(const auto full,
                           fields.integers("fullatt_block_indexes", 0, kMostLayers,
                                           static_cast<std::size_t>(kMostLayers), {7, 15, 23, 31}));
  vision.full_attention.resize(static_cast<std::size_t>(vision.depth));
  for (const std::int64_t block : full) {
    if (block < vision.depth) vision.full_attention[static_cast<std::size_t>(block)] = true;
  }
  EVALCAR_ASSIGN_OR_RETURN(auto rope, fields.object("rope_parameters"));
  if (rope) {
    EVALCAR_ASSIGN_OR_RETURN(vision.rope_theta, rope->number("rope_theta", 1.0, 1e12, 10000.0));
  }
  EVALCAR_RETURN_IF_ERROR(require_silu(fields));
  EVALCAR_RETURN_IF_ERROR(
      require_divisible(fields, "hidden_size must be divisible by four times the num_heads",
                        vision.hidden, 4 * vision.heads));
  if (vision.window_tokens() < 1)
    return make_error(ErrorCode::kCorruption,
                      fields.place() + ": window_size is smaller than one merged token");
  if (vision.out_hidden != text.hidden)
    return make_error(ErrorCode::kCorruption,
                      fields.place() + ": out_hidden_size " + std::to_string(vision.out_hidden) +
                          " is not the text model's hidden_size " + std::to_string(text.hidden));
  return vision;
}

}  // namespace

Result<Config> parse_config(const nlohmann::json& json, const std::string& place) {
  const ConfigFields root(json, place);
  EVALCAR_ASSIGN_OR_RETURN(const auto nested, root.object("text_config"));
  EVALCAR_ASSIGN_OR_RETURN(const auto vision, root.object("vision_config"));
  if (!vision) return root.unexpected("vision_config", "expected an object");
  const ConfigFields& text = nested ? *nested : root;
  Config config;
  EVALCAR_ASSIGN_OR_RETURN(config.text, parse_text(text));
  EVALCAR_ASSIGN_OR_RETURN(config.vision, parse_vision(*vision, config.text));
  // transformers ties if either place says so (before 5.x the key was in text_config).
  EVALCAR_ASSIGN_OR_RETURN(const bool outer_tie, root.boolean("tie_word_embeddings", false));
  EVALCAR_ASSIGN_OR_RETURN(const bool inner_tie, text.boolean("tie_word_embeddings", false));
  config.tied_head = outer_tie || inner_tie;
  EVALCAR_ASSIGN_OR_RETURN(
      const std::int64_t image_token,
      root.integer("image_token_id", 0, config.text.vocab - 1,
                   config.text.vocab > 151655 ? std::optional<std::int64_t>(151655)
                                              : std::optional<std::int64_t>()));
  config.image_token_id = static_cast<int>(image_token);
  return config;
}

}  // namespace evalcar::models::qwen2_5_vl
