// SigLIP's vision tower (Zhai et al. 2023): a ViT with learned positions over squares of one size,
// of which every patch of a square sees every other.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "evaluator/kernels/linear.h"
#include "evaluator/models/attention.h"
#include "evaluator/models/llava_onevision/config.h"
#include "evaluator/models/model.h"
#include "evaluator/weights/arena.h"

namespace evalcar::models::llava_onevision {

class VisionTower {
 public:
  /// `feature_layers`: Config::feature_layers.
  VisionTower(const VisionConfig& config, std::vector<std::int64_t> feature_layers,
              const weights::Arena& arena, AttentionKind attention);

  /// patches: (squares · side², patch_elements) float32, in reading order. Returns (squares ·
  /// side², hidden · feature layers); of no use where on_layer said to stop.
  at::Tensor encode(const at::Tensor& patches, const OnLayer& on_layer) const;

 private:
  using Linear = kernels::LinearWeights;
  struct Norm {
    at::Tensor weight, bias;
  };
  struct Block {
    Norm norm1;
    Linear qkv, out;
    Norm norm2;
    Linear fc1, fc2;
  };
  at::Tensor normed(const Norm& norm, const at::Tensor& x) const;
  at::Tensor attend(const Block& block, const at::Tensor& x) const;

  VisionConfig config_;
  std::vector<std::int64_t> feature_layers_;
  AttentionKind attention_;
  Linear patch_embed_;    // weight: (hidden, patch_elements)
  at::Tensor positions_;  // (side², hidden)
  std::vector<Block> blocks_;
};

}  // namespace evalcar::models::llava_onevision
