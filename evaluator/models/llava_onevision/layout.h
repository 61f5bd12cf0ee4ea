// The tensors of a LLaVA-OneVision model, and where they land.
#pragma once

#include <string>
#include <string_view>

#include "evaluator/models/llava_onevision/config.h"
#include "evaluator/weights/layout.h"

namespace evalcar::models::llava_onevision {

/// "model.layers.0…", "lm_head.weight", "vision_tower.embeddings…", "multi_modal_projector…",
/// "image_newline": to these are mapped the hub's names ("language_model.model.…",
/// "vision_tower.vision_model.…"), the module's own of 4.52 ("model.language_model.…",
/// "model.vision_tower.vision_model.…") and of 5.x ("model.vision_tower.encoder…").
std::string canonical_name(std::string_view stored);

/// The decoder's, the tower's (query, key and value stacked; the patch convolution as a matrix) and
/// the projector's. What nothing reads (the norm after the last block, the pooling head) is
/// expected and kept, too: a checkpoint without it is torn.
weights::WeightLayout make_layout(const Config& config);

}  // namespace evalcar::models::llava_onevision
