#include "evaluator/models/llava_onevision/model.h"

#include <ATen/ops/cat.h>

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "evaluator/models/decoder/decoder.h"
#include "evaluator/models/decoder/text_model.h"
#include "evaluator/models/llava_onevision/config.h"
#include "evaluator/models/llava_onevision/layout.h"
#include "evaluator/models/llava_onevision/packing.h"
#include "evaluator/models/llava_onevision/vision.h"

namespace evalcar::models::llava_onevision {
namespace {

class LlavaOnevision final : public Model {
 public:
  explicit LlavaOnevision(Config config)
      : config_(std::move(config)), info_(decoder::describe("llava_onevision", config_.text)) {
    info_.image_token_id = config_.image_token_id;
    info_.merge = 1;
    info_.patch_size = config_.vision.patch;
    info_.temporal_patch = 1;
    info_.tile = config_.vision.image_size;
    info_.patch_elements = config_.vision.patch_elements();
  }

  const ModelInfo& info() const override { return info_; }
  weights::WeightLayout layout() const override { return make_layout(config_); }

  void bind(const weights::Arena& arena, AttentionKind attention) override {
    tower_.emplace(config_.vision, config_.feature_layers, arena, attention);
    projector_.emplace(config_, arena);
    newline_ = arena.tensor("image_newline");
    text_.emplace(config_.text, arena);
  }

  Result<std::int64_t> image_tokens(const ImageGrid& grid) const override {
    EVALCAR_ASSIGN_OR_RETURN(const evalcar::vision::AnyresGrid cut, cut_of(grid));
    return cut.tokens();
  }

  Result<PromptPositions> positions(std::span<const std::int32_t> tokens,
                                    std::span<const ImageGrid> grids) const override {
    std::vector<std::int64_t> counts;
    for (const ImageGrid& grid : grids) {
      EVALCAR_ASSIGN_OR_RETURN(counts.emplace_back(), image_tokens(grid));
    }
    PromptPositions positions = line_positions(tokens.size());
    EVALCAR_ASSIGN_OR_RETURN(positions.images, image_spans(tokens, counts, config_.image_token_id));
    return positions;
  }

  at::Tensor encode_images(const at::Tensor& patches, std::span<const ImageGrid> grids,
                           const OnLayer& on_layer) const override {
    const at::Tensor features = (*projector_)(tower_->encode(patches, on_layer));
    std::vector<at::Tensor> pictures;
    std::int64_t row = 0;
    for (const ImageGrid& grid : grids) {
      // positions() has let the grid pass.
      pictures.push_back(pack_features(features.narrow(0, row, grid.patches()), newline_,
                                       *cut_of(grid), config_.vision.side()));
      row += grid.patches();
    }
    return at::cat(pictures, 0);
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
  /// How the model takes a picture that was cut into grid.t squares. The processor's files and the
  /// model's may disagree.
  Result<evalcar::vision::AnyresGrid> cut_of(const ImageGrid& grid) const {
    constexpr std::int64_t kMostSide = std::numeric_limits<std::int32_t>::max();
    const std::int64_t side = config_.vision.side();
    if (grid.h != side || grid.w != side || grid.height > kMostSide || grid.width > kMostSide)
      return make_error(ErrorCode::kInvalidArgument,
                        "squares of " + std::to_string(grid.h) + "x" + std::to_string(grid.w) +
                            " patches; the model reads " + std::to_string(side) + "x" +
                            std::to_string(side));
    EVALCAR_ASSIGN_OR_RETURN(const evalcar::vision::AnyresGrid cut,
                             evalcar::vision::anyres_grid({.width = static_cast<int>(grid.width),
                                                           .height = static_cast<int>(grid.height)},
                                                          config_.anyres));
    if (cut.tiles() != grid.t)
      return make_error(ErrorCode::kInvalidArgument,
                        "a picture of " + std::to_string(grid.width) + "x" +
                            std::to_string(grid.height) + " pixels was cut into " +
                            std::to_string(grid.t) + " squares, and the model's " +
                            "image_grid_pinpoints ask for " + std::to_string(cut.tiles()) +
                            ": config.json and the processor's file do not belong together");
    return cut;
  }

  Config config_;
  ModelInfo info_;
  std::optional<VisionTower> tower_;
  std::optional<Projector> projector_;
  at::Tensor newline_;
  std::optional<decoder::Decoder> text_;
};

}  // namespace

Result<std::unique_ptr<Model>> make_model(const nlohmann::json& config, const std::string& place) {
  EVALCAR_ASSIGN_OR_RETURN(Config parsed, parse_config(config, place));
  return std::unique_ptr<Model>(std::make_unique<LlavaOnevision>(std::move(parsed)));
}

}  // namespace evalcar::models::llava_onevision
