// From the tower's features to a picture's tokens: the projector, and the order in which the
// squares of a picture become lines of text (pack_image_features of transformers 5.17).
#pragma once

#include <ATen/core/Tensor.h>

#include "evaluator/kernels/linear.h"
#include "evaluator/models/llava_onevision/config.h"
#include "evaluator/weights/arena.h"

namespace evalcar::models::llava_onevision {

/// Takes a feature into the decoder's space: two linear maps with GELU between them.
class Projector {
 public:
  Projector(const Config& config, const weights::Arena& arena);

  /// features: (rows, hidden of the tower · feature layers). Returns (rows, hidden of the decoder).
  at::Tensor operator()(const at::Tensor& features) const;

 private:
  kernels::LinearWeights first_, second_;
};

/// features: (grid.tiles() · side², hidden) of one picture, projected: the whole picture's square,
/// then the squares of its resolution. Returns (grid.tokens(), hidden): the first square as it is;
/// the others put together, their border cut off, shrunk bilinearly where they are too many, and
/// each row followed by `newline` (hidden).
at::Tensor pack_features(const at::Tensor& features, const at::Tensor& newline,
                         const evalcar::vision::AnyresGrid& grid, std::int64_t side);

}  // namespace evalcar::models::llava_onevision
