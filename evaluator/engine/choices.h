// What the settings' words mean for an engine.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "evaluator/models/model.h"
#include "evaluator/vision/prepare.h"
#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::engine {

struct AttentionChoice {
  models::AttentionKind kind = models::AttentionKind::kSdpa;
  std::string warning;  ///< another one than asked for runs; empty otherwise
};
/// kInvalidArgument, with the known names, for one that is not known. "" is the default.
Result<AttentionChoice> choose_attention(const std::string& name);

/// kInvalidArgument, with the known names, for one that is not known. "" is "auto".
Result<at::ScalarType> choose_dtype(const std::string& name, const c10::Device& device);

/// What is lost where weights that are stored so are computed in `dtype`, as a sentence; "" where
/// nothing is that a float32 has.
std::string lost_in(at::ScalarType dtype, const checkpoint::Plan& plan);

/// kCorruption where the processor cuts pictures otherwise than the model expects.
Status check_processor(const vision::ProcessorSettings& processor, const models::ModelInfo& info);

}  // namespace evalcar::engine
