#include "evaluator/models/decoder/text_model.h"

#include <c10/util/Exception.h>

#include <optional>
#include <utility>

#include "evaluator/models/decoder/decoder.h"
#include "evaluator/models/decoder/layout.h"

namespace evalcar::models::decoder {
namespace {

class TextModel final : public Model {
 public:
  TextModel(const std::string& model_type, Config config)
      : config_(std::move(config)), info_(describe(model_type, config_)) {}

  const ModelInfo& info() const override { return info_; }

  weights::WeightLayout layout() const override {
    weights::WeightLayout layout;
    layout.canonical_name = [](std::string_view stored) { return std::string(stored); };
    add_tensors(layout, config_);
    return layout;
  }
  void bind(const weights::Arena& arena, AttentionKind) override {
    decoder_.emplace(config_, arena);
  }

  Result<std::int64_t> image_tokens(const ImageGrid&) const override { return no_pictures(); }
  Result<PromptPositions> positions(std::span<const std::int32_t> tokens,
                                    std::span<const ImageGrid> grids) const override {
    if (!grids.empty()) return no_pictures();
    return line_positions(tokens.size());
  }
  at::Tensor encode_images(const at::Tensor&, std::span<const ImageGrid>,
                           const OnLayer&) const override {
    TORCH_CHECK(false, "a text model has no vision tower");  // positions() let no picture pass
  }
  at::Tensor embed(const at::Tensor& ids) const override { return decoder_->embed(ids); }
  at::Tensor forward(const TextBatch& batch, const CachedAttention& attention,
                     const OnLayer& on_layer) const override {
    return decoder_->forward(batch, attention, on_layer);
  }
  at::Tensor logits(const at::Tensor& hidden) const override { return decoder_->logits(hidden); }
  kernels::TokenScores score(const at::Tensor& hidden,
                             const kernels::AskedTokens& asked) const override {
    return decoder_->score(hidden, asked);
  }

 private:
  Error no_pictures() const {
    return make_error(
        ErrorCode::kInvalidArgument,
        "prompt: a " + info_.model_type + " model reads text alone, and pictures are given");
  }

  Config config_;
  ModelInfo info_;
  std::optional<Decoder> decoder_;
};

}  // namespace

ModelInfo describe(const std::string& model_type, const Config& config) {
  return {.model_type = model_type,
          .vocab = config.vocab,
          .hidden = config.hidden,
          .intermediate = config.intermediate,
          .layers = config.layers,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .window = config.window};
}

std::unique_ptr<Model> make_text_model(const std::string& model_type, Config config) {
  return std::make_unique<TextModel>(model_type, std::move(config));
}

}  // namespace evalcar::models::decoder
