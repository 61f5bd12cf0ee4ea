#include "evaluator/engine/choices.h"

#include <algorithm>

namespace evalcar::engine {

Result<AttentionChoice> choose_attention(const std::string& name) {
  if (name.empty() || name == "sdpa") return AttentionChoice{};
  if (name == "eager") return AttentionChoice{models::AttentionKind::kEager, ""};
  if (name == "flash_attention_2")
    return AttentionChoice{models::AttentionKind::kSdpa,
                           "attn_implementation flash_attention_2 is not a kernel of this program; "
                           "sdpa runs in its place"};
  return make_error(
      ErrorCode::kInvalidArgument,
      "attn_implementation must be one of [None, 'flash_attention_2', 'sdpa', 'eager'], got " +
          name);
}

Result<at::ScalarType> choose_dtype(const std::string& name, const c10::Device& device) {
  if (name.empty() || name == "auto") return device.is_cuda() ? at::kBFloat16 : at::kFloat;
  if (name == "float32") return at::kFloat;
  if (name == "bfloat16") return at::kBFloat16;
  return make_error(ErrorCode::kInvalidArgument,
                    "dtype \"" + name + "\": expected auto, float32 or bfloat16");
}

std::string lost_in(at::ScalarType dtype, const checkpoint::Plan& plan) {
  const bool halves = std::ranges::any_of(plan.tensors, [](const checkpoint::TensorPlan& tensor) {
    return tensor.dtype == checkpoint::DType::kFloat16;
  });
  if (!halves || dtype != at::kBFloat16) return "";
  return "weights that are stored in float16 are computed in bfloat16, which has three bits less; "
         "evaluate.dtype = \"float32\" keeps them";
}

Status check_processor(const vision::ProcessorSettings& processor, const models::ModelInfo& info) {
  const int tile = processor.anyres ? processor.anyres->tile : 0;
  if (tile != info.tile)
    return make_error(ErrorCode::kCorruption,
                      "the processor cuts squares of " + std::to_string(tile) +
                          " pixels (0: none), and the model expects " + std::to_string(info.tile));
  if (processor.patch_size == info.patch_size && processor.merge_size == info.merge &&
      processor.temporal_patch_size == info.temporal_patch)
    return {};
  return make_error(ErrorCode::kCorruption,
                    "the processor cuts patches of " + std::to_string(processor.patch_size) +
                        " pixels, " + std::to_string(processor.temporal_patch_size) +
                        " frames, merged by " + std::to_string(processor.merge_size) +
                        "; the model expects " + std::to_string(info.patch_size) + ", " +
                        std::to_string(info.temporal_patch) + ", " + std::to_string(info.merge));
}

}  // namespace evalcar::engine
