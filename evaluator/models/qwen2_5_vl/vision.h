// The vision tower of Qwen2.5-VL (Bai et al. 2025, section 2.1.1): a ViT that attends inside
// windows in most blocks and over the whole picture in a few, then merges 2×2 patches into one
// token.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "evaluator/kernels/linear.h"
#include "evaluator/kernels/window_attention.h"
#include "evaluator/models/attention.h"
#include "evaluator/models/model.h"
#include "evaluator/models/qwen2_5_vl/config.h"
#include "evaluator/models/rotary.h"
#include "evaluator/models/tower_order.h"
#include "evaluator/weights/arena.h"

namespace evalcar::models::qwen2_5_vl {

class VisionTower {
 public:
  using Config = VisionConfig;

  VisionTower(const VisionConfig& config, const weights::Arena& arena, AttentionKind attention);

  /// patches: (P, patch_elements) float32, merge windows first, as the processor orders them.
  /// Returns (P / merge², out_hidden), in the order of the placeholders.
  at::Tensor encode(const at::Tensor& patches, std::span<const ImageGrid> grids,
                    const OnLayer& on_layer) const;

 private:
  struct Block {
    at::Tensor norm1, norm2;
    kernels::LinearWeights qkv, proj, gate_up, down;
    bool full_attention = false;
  };
  /// Where rows attend to one another: `at_once` where one kernel may take all of it.
  struct Places {
    std::span<const BlockRun> runs;
    kernels::Windows at_once;
  };
  static Places places_of(std::span<const BlockRun> runs, at::Device device);
  /// Without the projection of the heads.
  at::Tensor attend(const Block& block, const at::Tensor& x, const RotaryAngles& angles,
                    const Places& places) const;
  at::Tensor merge(const at::Tensor& x) const;
  RotaryAngles angles(const TowerOrder& order) const;

  VisionConfig config_;
  AttentionKind attention_;
  at::Tensor frequencies_;  // (head_dim/4) float32
  at::Tensor patch_embed_;  // still_kernel()
  std::vector<Block> blocks_;
  at::Tensor merger_norm_;
  kernels::LinearWeights merger_0_, merger_2_;
};

}  // namespace evalcar::models::qwen2_5_vl
