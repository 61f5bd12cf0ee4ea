#include "evaluator/models/patch_embedding.h"

#include <ATen/ops/sum.h>

namespace evalcar::models {

at::Tensor still_kernel(const at::Tensor& weight, std::int64_t channels, std::int64_t frames) {
  if (frames == 1 || weight.scalar_type() != at::kFloat) return weight;
  const std::int64_t hidden = weight.size(0);
  return weight.view({hidden, channels, frames, -1}).sum(2).view({hidden, -1});
}

at::Tensor still_patches(const at::Tensor& patches, const at::Tensor& kernel,
                         std::int64_t channels) {
  const at::Tensor typed = patches.to(kernel.scalar_type());
  const std::int64_t frames = kernel.size(1) / typed.size(1);
  if (frames == 1) return typed;
  const std::int64_t pixels = typed.size(1) / channels;
  return typed.view({-1, channels, 1, pixels})
      .expand({-1, channels, frames, pixels})
      .reshape({typed.size(0), -1});
}

}  // namespace evalcar::models
