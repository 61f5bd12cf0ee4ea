#include "evaluator/models/qwen2_5_vl/model.h"

#include <optional>
#include <utility>

#include "evaluator/models/decoder/decoder.h"
#include "evaluator/models/decoder/text_model.h"
#include "evaluator/models/qwen2_5_vl/config.h"
#include "evaluator/models/qwen2_5_vl/layout.h"
#include "evaluator/models/qwen2_5_vl/vision.h"

namespace evalcar::models::qwen2_5_vl {
namespace {

ModelInfo describe(const Config& config) {
  ModelInfo info = decoder::describe("qwen2_5_vl", config.text);
  info.image_token_id = config.image_token_id;
  info.merge = config.vision.merge;
  info.patch_size = config.vision.patch;
  info.temporal_patch = config.vision.temporal_patch;
  info.patch_elements = config.vision.patch_elements();
  return info;
}

class Qwen25Vl final : public Model {
 public:
  explicit Qwen25Vl(Config config) : config_(std::move(config)), info_(describe(config_)) {}

  const ModelInfo& info() const override { return info_; }
  weights::WeightLayout layout() const override { return weight_layout(config_); }

  void bind(const weights::Arena& arena, AttentionKind attention) override {
    vision_.emplace(config_.vision, arena, attention);
    text_.emplace(config_.text, arena);
  }

  Result<PromptPositions> positions(std::span<const std::int32_t> tokens,
                                    std::span<const ImageGrid> grids) const override {
    return mrope_positions(tokens, grids, config_.image_token_id, config_.vision.merge);
  }
  at::Tensor encode_images(const at::Tensor& patches, std::span<const ImageGrid> grids,
                           const OnLayer& on_layer) const override {
    return vision_->encode(patches, grids, on_layer);
  }
  at::Tensor embed(const at::Tensor& ids) const override { return text_->embed(ids); }
  at::Tensor forward(const TextBatch& batch, const CachedAttention& attention,
                     const OnLayer& on_layer) const override {
    return text_->forward(batch, attention, on_layer);
  }
  at::Tensor logits(const at::Tensor& hidden) const override { return text_->logits(hidden); }

 private:
  Config config_;
  ModelInfo info_;
  std::optional<VisionTower> vision_;
  std::optional<decoder::Decoder> text_;
};

}  // namespace

Result<std::unique_ptr<Model>> make_model(const nlohmann::json& config, const std::string& place) {
  EVALCAR_ASSIGN_OR_RETURN(Config parsed, parse_config(config, place));
  return std::unique_ptr<Model>(std::make_unique<Qwen25Vl>(std::move(parsed)));
}

}  // namespace evalcar::models::qwen2_5_vl
