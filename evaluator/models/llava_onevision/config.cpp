#include "evaluator/models/llava_onevision/config.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "evaluator/models/config_fields.h"
#include "evaluator/models/qwen_vl.h"
#include "evaluator/models/text_families/families.h"

namespace evalcar::models::llava_onevision {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kUsualImageToken = 151646;
constexpr std::int64_t kMostImageSize = 4096;
constexpr std::size_t kMostFeatureLayers = 64;

// What transformers takes for the keys of a text_config that are not there; a file of 4.x leaves
// out what is equal to them.
Json with_qwen2_defaults(const Json& text) {
  Json whole = {{"vocab_size", 151936},
                {"hidden_size", 4096},
                {"intermediate_size", 22016},
                {"num_hidden_layers", 32},
                {"num_attention_heads", 32}};
  whole.update(text);
  return whole;
}

Status require_type(const ConfigFields& fields, const char* known) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string type, fields.text("model_type", known));
  if (type == known) return {};
  return fields.unsupported("model_type is \"" + type.substr(0, 80) + "\" (known: " + known + ")");
}

Result<decoder::Config> read_text(const ConfigFields& root, const std::string& place) {
  EVALCAR_ASSIGN_OR_RETURN(const auto fields, root.object("text_config"));
  if (!fields) return root.unexpected("text_config", "expected an object");
  EVALCAR_RETURN_IF_ERROR(require_type(*fields, "qwen2"));
  EVALCAR_ASSIGN_OR_RETURN(
      decoder::Config text,
      text_families::parse_qwen2(with_qwen2_defaults(fields->json()), place + ": text_config"));
  EVALCAR_ASSIGN_OR_RETURN(text.tied_head, qwen_vl::read_tie(root, text));
  return text;
}

Result<VisionConfig> read_vision(const ConfigFields& fields) {
  EVALCAR_RETURN_IF_ERROR(require_type(fields, "siglip_vision_model"));
  VisionConfig c;
  EVALCAR_ASSIGN_OR_RETURN(c.depth, fields.integer("num_hidden_layers", 1, kMostLayers, 12));
  EVALCAR_ASSIGN_OR_RETURN(c.hidden, fields.integer("hidden_size", 1, kMostWidth, 768));
  EVALCAR_ASSIGN_OR_RETURN(c.intermediate,
                           fields.integer("intermediate_size", 1, kMostWidth * 8, 3072));
  EVALCAR_ASSIGN_OR_RETURN(c.heads, fields.integer("num_attention_heads", 1, kMostHeads, 12));
  EVALCAR_ASSIGN_OR_RETURN(c.image_size, fields.integer("image_size", 1, kMostImageSize, 224));
  EVALCAR_ASSIGN_OR_RETURN(c.patch, fields.integer("patch_size", 1, 256, 16));
  EVALCAR_ASSIGN_OR_RETURN(c.norm_eps, fields.number("layer_norm_eps", 0.0, 1.0, 1e-6));
  EVALCAR_ASSIGN_OR_RETURN(c.pooling_head, fields.boolean("vision_use_head", true));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t channels, fields.integer("num_channels", 1, 16, 3));
  EVALCAR_RETURN_IF_ERROR(fields.require("hidden_act", "gelu_pytorch_tanh"));
  EVALCAR_RETURN_IF_ERROR(fields.require_multiple(
      "hidden_size must be divisible by num_attention_heads", c.hidden, c.heads));
  if (channels != 3) return fields.unexpected("num_channels", "expected 3: pictures are RGB");
  if (c.patch > c.image_size)
    return fields.unexpected("patch_size",
                             "expected at most image_size = " + std::to_string(c.image_size));
  return c;
}

// One number, or several whose features stand beside each other; negative ones count from the last.
Result<std::vector<std::int64_t>> read_feature_layers(const ConfigFields& root,
                                                      std::int64_t depth) {
  constexpr const char* kKey = "vision_feature_layer";
  std::vector<std::int64_t> layers;
  if (root.has(kKey) && root.json().at(kKey).is_array()) {
    EVALCAR_ASSIGN_OR_RETURN(layers,
                             root.integers(kKey, -depth - 1, depth, kMostFeatureLayers, {}));
    if (layers.empty()) return root.unexpected(kKey, "expected a layer");
  } else {
    EVALCAR_ASSIGN_OR_RETURN(layers.emplace_back(), root.integer(kKey, -depth - 1, depth, -1));
  }
  for (std::int64_t& layer : layers) layer += layer < 0 ? depth + 1 : 0;
  return layers;
}

Result<evalcar::vision::Anyres> read_anyres(const ConfigFields& root, const VisionConfig& tower) {
  evalcar::vision::Anyres anyres{.tile = static_cast<int>(tower.image_size),
                                 .side = static_cast<int>(tower.side())};
  anyres.resolutions = evalcar::vision::usual_resolutions();
  if (root.has("image_grid_pinpoints")) {
    EVALCAR_ASSIGN_OR_RETURN(
        anyres.resolutions,
        evalcar::vision::read_resolutions(root.json().at("image_grid_pinpoints"), anyres.tile,
                                          root.place() + ": image_grid_pinpoints"));
  } else if (tower.image_size != 384) {
    return root.unexpected("image_grid_pinpoints",
                           "expected a list: the usual one is of squares of 384 pixels, and "
                           "image_size is " +
                               std::to_string(tower.image_size));
  }
  EVALCAR_ASSIGN_OR_RETURN(const std::string ratio,
                           root.text("vision_aspect_ratio", "anyres_max_9"));
  EVALCAR_ASSIGN_OR_RETURN(anyres.most_tiles, evalcar::vision::read_most_tiles(
                                                  ratio, root.place() + ": vision_aspect_ratio"));
  return anyres;
}

// "image_token_index" is its name in files, "image_token_id" the newer one.
Result<int> read_image_token(const ConfigFields& root, std::int64_t vocab) {
  const bool by_id = root.has("image_token_id");
  if (by_id && root.has("image_token_index") &&
      root.json().at("image_token_id") != root.json().at("image_token_index"))
    return root.unexpected("image_token_id", "expected the same as image_token_index");
  const auto usual = vocab > kUsualImageToken ? std::optional(kUsualImageToken) : std::nullopt;
  EVALCAR_ASSIGN_OR_RETURN(
      const std::int64_t id,
      root.integer(by_id ? "image_token_id" : "image_token_index", 0, vocab - 1, usual));
  return static_cast<int>(id);
}

}  // namespace

Result<Config> parse_config(const Json& config, const std::string& place) {
  const ConfigFields root(config, place);
  Config c;
  EVALCAR_ASSIGN_OR_RETURN(c.text, read_text(root, place));
  EVALCAR_ASSIGN_OR_RETURN(const ConfigFields vision, qwen_vl::vision_fields(root));
  EVALCAR_ASSIGN_OR_RETURN(c.vision, read_vision(vision));
  EVALCAR_ASSIGN_OR_RETURN(c.feature_layers, read_feature_layers(root, c.vision.depth));
  EVALCAR_ASSIGN_OR_RETURN(c.projector_bias, root.boolean("multimodal_projector_bias", true));
  EVALCAR_RETURN_IF_ERROR(root.require("projector_hidden_act", "gelu"));
  // "default" drops the first feature, which was a class token in other towers: transformers cannot
  // put together what is left of a square.
  EVALCAR_RETURN_IF_ERROR(root.require("vision_feature_select_strategy", "full"));
  EVALCAR_ASSIGN_OR_RETURN(c.anyres, read_anyres(root, c.vision));
  EVALCAR_ASSIGN_OR_RETURN(c.image_token_id, read_image_token(root, c.text.vocab));
  return c;
}

}  // namespace evalcar::models::llava_onevision
