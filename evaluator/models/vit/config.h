// The numbers of a vision tower that attends over whole pictures: Qwen2-VL's and Qwen3-VL's.
//
// Both are one ViT (Dosovitskiy et al. 2021) over patches of any number, whose heads turn with a
// patch's row and column, and which merges 2×2 patches into one token at the end. Qwen3-VL adds a
// learned grid of positions, resampled to each picture, and DeepStack (Meng et al. 2024): what some
// blocks in the middle see is merged, too, and added to the first layers of the decoder.
#pragma once

#include <cstdint>
#include <vector>

#include "evaluator/models/config_fields.h"
#include "store/base/result.h"

namespace evalcar::models::vit {

enum class Activation {
  kQuickGelu,  ///< x · sigmoid(1.702 x)
  kGeluTanh,   ///< GELU by its tanh approximation
};

/// What a family calls its parts.
struct Names {
  const char* fc1;
  const char* fc2;
  const char* merger_norm;
  const char* merger_fc1;
  const char* merger_fc2;
};
inline constexpr Names kQwen2Names = {"fc1", "fc2", "ln_q", "mlp.0", "mlp.2"};
inline constexpr Names kQwen3Names = {"linear_fc1", "linear_fc2", "norm", "linear_fc1",
                                      "linear_fc2"};

struct Config {
  std::int64_t depth = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t heads = 0;
  std::int64_t channels = 3;
  std::int64_t patch = 14;
  std::int64_t temporal_patch = 2;
  std::int64_t merge = 2;  ///< patches per side that become one token
  std::int64_t out_hidden = 0;
  double rope_theta = 10000.0;
  Activation activation = Activation::kQuickGelu;
  Names names = kQwen2Names;
  bool patch_bias = false;
  std::int64_t grid_side = 0;           ///< of the learned grid of positions; 0: there is none
  std::vector<std::int64_t> deepstack;  ///< blocks whose output is merged, too, in that order

  std::int64_t head_dim() const { return hidden / heads; }
  /// Numbers in a still picture's patch.
  std::int64_t patch_elements() const { return channels * patch * patch; }
  /// Numbers that a patch has in all frames that the embedding's kernel spans.
  std::int64_t kernel_elements() const { return temporal_patch * patch_elements(); }
  std::int64_t merged() const { return hidden * merge * merge; }
};

/// num_heads, which transformers also takes as num_attention_heads: 16 where there is neither.
/// kCorruption where they are two.
Result<std::int64_t> read_heads(const ConfigFields& fields);

/// The base of the tower's frequencies, of which rows and columns have the same: rope_theta, in the
/// object of the rotary positions or beside it, else 10,000. kUnsupported for frequencies that are
/// scaled.
Result<double> read_rope_theta(const ConfigFields& fields);

/// The numbers that both name alike, checked: depth, num_heads, in_channels, patch_size,
/// temporal_patch_size, spatial_merge_size, rope_theta.
Status read_config(const ConfigFields& fields, Config& config);

/// kCorruption where the numbers contradict each other or the decoder's hidden size.
Status check_config(const ConfigFields& fields, const Config& config, std::int64_t text_hidden);

}  // namespace evalcar::models::vit
