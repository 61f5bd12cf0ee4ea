// The numbers of a LLaVA-OneVision model (Li et al. 2024): a SigLIP tower, a projector, a Qwen2.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "evaluator/models/decoder/config.h"
#include "evaluator/vision/anyres.h"
#include "store/base/result.h"

namespace evalcar::models::llava_onevision {

/// SigLIP's tower (Zhai et al. 2023), which reads squares of one size.
struct VisionConfig {
  std::int64_t depth = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t heads = 0;
  std::int64_t image_size = 0;  ///< pixels per side of a square
  std::int64_t patch = 0;
  double norm_eps = 1e-6;
  bool pooling_head = true;  ///< its tensors are in the checkpoint; nothing reads them

  /// Patches per side of a square; what is beyond whole ones is not read.
  std::int64_t side() const { return image_size / patch; }
  std::int64_t patches() const { return side() * side(); }
  std::int64_t patch_elements() const { return 3 * patch * patch; }
};

struct Config {
  decoder::Config text;
  VisionConfig vision;
  /// After how many blocks of the tower the features are taken (0: what the blocks get), in the
  /// order in which they stand beside each other.
  std::vector<std::int64_t> feature_layers;
  bool projector_bias = true;
  evalcar::vision::Anyres anyres;
  int image_token_id = 0;
};

/// Reads config.json as transformers 4.x or 5.x wrote it: nested, of which a file of 4.x may hold
/// only what differs from the defaults. kCorruption for absurd or contradicting numbers,
/// kUnsupported by name for what is not computed. `place` names the file in messages.
Result<Config> parse_config(const nlohmann::json& json, const std::string& place);

}  // namespace evalcar::models::llava_onevision
