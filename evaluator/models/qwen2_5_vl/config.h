// The numbers of a Qwen2.5-VL model.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "evaluator/models/qwen_vl.h"
#include "store/base/result.h"

namespace evalcar::models::qwen2_5_vl {

struct VisionConfig {
  std::int64_t depth = 32;
  std::int64_t hidden = 1280;
  std::int64_t intermediate = 3420;
  std::int64_t heads = 16;
  std::int64_t channels = 3;
  std::int64_t patch = 14;
  std::int64_t temporal_patch = 2;
  std::int64_t merge = 2;            ///< patches per side that become one token
  std::int64_t window = 112;         ///< pixels per side of an attention window
  std::int64_t out_hidden = 0;       ///< = the decoder's hidden
  std::vector<bool> full_attention;  ///< per block: the whole picture, not windows
  double rope_theta = 10000.0;

  std::int64_t head_dim() const { return hidden / heads; }
  /// Numbers in a still picture's patch.
  std::int64_t patch_elements() const { return channels * patch * patch; }
  /// Numbers that a patch has in all frames that the embedding's kernel spans.
  std::int64_t kernel_elements() const { return temporal_patch * patch_elements(); }
  /// Merged tokens per side of a window.
  std::int64_t window_tokens() const { return window / merge / patch; }
};

using Config = qwen_vl::Config<VisionConfig>;

/// qwen_vl::read_config() of this family.
Result<Config> parse_config(const nlohmann::json& json, const std::string& place);

}  // namespace evalcar::models::qwen2_5_vl
