// What the engine needs of a model. Families implement it and register themselves in registry.cpp;
// the engine knows none by name.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "evaluator/kernels/token_scores.h"
#include "evaluator/models/attention.h"
#include "evaluator/models/positions.h"
#include "evaluator/weights/arena.h"
#include "evaluator/weights/layout.h"
#include "store/base/result.h"

namespace evalcar::models {

struct ModelInfo {
  std::string model_type;
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t window = 0;  ///< tokens that the windowed layers see; 0: there are none
  int image_token_id = -1;  ///< -1: no pictures
  std::int64_t merge = 2;   ///< patches per side of a picture's token
  std::int64_t patch_size = 14;
  std::int64_t temporal_patch = 2;
  std::int64_t tile =
      0;  ///< pixels per side of the squares that a picture is cut into; 0: it is not
  std::int64_t patch_elements = 0;
  std::int64_t deepstack = 0;  ///< layers that a picture's features are added to, too
};

/// Called after each layer, on the thread that computes. False: the result is not wanted any more
/// (a stop); the rest of the layers is left out, and what is returned is of no use. May be empty.
using OnLayer = std::function<bool()>;

/// New tokens for the text model, several sequences packed without padding.
struct TextBatch {
  at::Tensor embeddings;  ///< (rows, hidden)
  /// (rows, deepstack · hidden): what is added to the rows after each of the first layers, 0 for
  /// words; undefined where the rows show no picture.
  at::Tensor deepstack;
  at::Tensor positions;  ///< (3, rows) int64: time, height, width
  at::Tensor wanted;     ///< (k) int64: rows whose final hidden state is asked for
};

/// One architecture with its numbers; computes once weights are bound. One thread at a time. All
/// functions but the constructor's may throw c10::Error.
class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelInfo& info() const = 0;
  virtual weights::WeightLayout layout() const = 0;
  /// Takes views of the arena's tensors; the arena must live as long as the model computes.
  virtual void bind(const weights::Arena& arena, AttentionKind attention) = 0;

  /// Placeholder tokens of a picture. kInvalidArgument for a grid that is none of this model's.
  virtual Result<std::int64_t> image_tokens(const ImageGrid& grid) const = 0;
  /// The positions of a prompt and of its pictures' placeholders.
  virtual Result<PromptPositions> positions(std::span<const std::int32_t> tokens,
                                            std::span<const ImageGrid> grids) const = 0;
  /// patches: (sum of patches, patch_elements) float32 on the device. Returns (sum of tokens,
  /// hidden · (1 + deepstack)): the tokens' embeddings, and what is added after the first layers.
  virtual at::Tensor encode_images(const at::Tensor& patches, std::span<const ImageGrid> grids,
                                   const OnLayer& on_layer) const = 0;
  /// ids: (rows) int64 on the device. Returns (rows, hidden).
  virtual at::Tensor embed(const at::Tensor& ids) const = 0;
  /// Runs the layers, filling the cache. Returns the hidden states of the wanted rows: (k, hidden).
  virtual at::Tensor forward(const TextBatch& batch, const CachedAttention& attention,
                             const OnLayer& on_layer) const = 0;
  /// hidden: (k, hidden) of forward(). Returns (k, vocab), in the model's dtype.
  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;
  /// What is asked of those logits, which are not all in memory at once where a kernel reads them.
  virtual kernels::TokenScores score(const at::Tensor& hidden,
                                     const kernels::AskedTokens& asked) const = 0;
};

}  // namespace evalcar::models
