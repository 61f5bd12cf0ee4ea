// The tower of vit::Config.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <vector>

#include "evaluator/kernels/linear.h"
#include "evaluator/models/attention.h"
#include "evaluator/models/model.h"
#include "evaluator/models/rotary.h"
#include "evaluator/models/tower_order.h"
#include "evaluator/models/vit/config.h"
#include "evaluator/weights/arena.h"

namespace evalcar::models::vit {

class Tower {
 public:
  using Config = vit::Config;

  Tower(const Config& config, const weights::Arena& arena, AttentionKind attention);

  /// patches: (P, patch_elements) float32, merge windows first, as the processor orders them.
  /// Returns (P / merge², out_hidden · (1 + deepstack)), in the order of the placeholders: the
  /// tokens, and beside each what DeepStack adds to the decoder's first layers.
  at::Tensor encode(const at::Tensor& patches, std::span<const ImageGrid> grids,
                    const OnLayer& on_layer) const;

 private:
  using Linear = kernels::LinearWeights;
  struct Norm {
    at::Tensor weight, bias;
    at::Tensor operator()(const at::Tensor& x) const;
  };
  struct Block {
    Norm norm1;
    Linear qkv, proj;
    Norm norm2;
    Linear fc1, fc2;
  };
  struct Merger {
    Norm norm;
    Linear fc1, fc2;
  };
  at::Tensor embed(const at::Tensor& patches, std::span<const ImageGrid> grids) const;
  at::Tensor attend(const Block& block, const at::Tensor& x, const RotaryAngles& angles,
                    std::span<const BlockRun> frames) const;
  at::Tensor activated(const at::Tensor& x) const;
  at::Tensor merge(const Merger& merger, const at::Tensor& x) const;
  RotaryAngles angles(const TowerOrder& order) const;

  Config config_;
  AttentionKind attention_;
  at::Tensor frequencies_;  // (head_dim/4) float32
  Linear patch_embed_;      // weight: still_kernel()
  at::Tensor grid_;         // (grid_side², hidden); undefined where there is none
  std::vector<Block> blocks_;
  Merger merger_;
  std::vector<Merger> deepstack_;
};

}  // namespace evalcar::models::vit
