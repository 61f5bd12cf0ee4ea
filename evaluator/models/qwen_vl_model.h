// A Qwen-VL model behind the interface: a tower, a decoder, and a config of both. The families
// differ in their towers and in the numbers alone.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "evaluator/models/decoder/decoder.h"
#include "evaluator/models/decoder/layout.h"
#include "evaluator/models/decoder/text_model.h"
#include "evaluator/models/model.h"
#include "evaluator/models/qwen_vl.h"

namespace evalcar::models {

/// Tower: made of (its Config, arena, attention), with encode(patches, grids, on_layer). The Config
/// has merge, patch, temporal_patch and patch_elements(), and in its namespace
/// add_tensors(layout, config).
template <typename Tower>
class QwenVlModel final : public Model {
 public:
  using Config = qwen_vl::Config<typename Tower::Config>;

  /// `deepstack`: how many layers of the decoder the tower's features are added to.
  QwenVlModel(const std::string& model_type, Config config, std::int64_t deepstack = 0)
      : config_(std::move(config)) {
    info_ = decoder::describe(model_type, config_.text);
    info_.image_token_id = config_.image_token_id;
    info_.merge = config_.vision.merge;
    info_.patch_size = config_.vision.patch;
    info_.temporal_patch = config_.vision.temporal_patch;
    info_.patch_elements = config_.vision.patch_elements();
    info_.deepstack = deepstack;
  }

  const ModelInfo& info() const override { return info_; }
  weights::WeightLayout layout() const override {
    weights::WeightLayout layout;
    layout.canonical_name = &qwen_vl::canonical_name;
    decoder::add_tensors(layout, config_.text);
    add_tensors(layout, config_.vision);
    return layout;
  }

  void bind(const weights::Arena& arena, AttentionKind attention) override {
    vision_.emplace(config_.vision, arena, attention);
    text_.emplace(config_.text, arena);
  }

  Result<std::int64_t> image_tokens(const ImageGrid& grid) const override {
    return merged_tokens(grid, config_.vision.merge);
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
  kernels::TokenScores score(const at::Tensor& hidden,
                             const kernels::AskedTokens& asked) const override {
    return text_->score(hidden, asked);
  }

 private:
  Config config_;
  ModelInfo info_;
  std::optional<Tower> vision_;
  std::optional<decoder::Decoder> text_;
};

}  // namespace evalcar::models
