#include "evaluator/models/patch_embedding.h"

#include <ATen/ops/sum.h>

namespace evalcar::models {

at::Tensor fold_frames(const at::Tensor& weight, std::int64_t channels, std::int64_t frames) {
  if (frames == 1) return weight;
  const std::int64_t hidden = weight.size(0);
  return weight.view({hidden, channels, frames, -1})
      .sum(2, /*keepdim=*/false, at::kFloat)
      .view({hidden, -1})
      .to(weight.scalar_type());
}

}  // namespace evalcar::models
