// The names that transformers' folders have for the experts of a mixture, one by one.
//
// The modules of transformers 5 hold all experts of a layer in two tensors, `experts.gate_up_proj`
// and `experts.down_proj`; its save_pretrained() writes them as the hub has them, but a state_dict
// that is saved as it is (by FSDP, DCP, DeepSpeed) keeps them. 5.x itself loads both, 4.57 only the
// hub's.
#pragma once

#include <string>
#include <string_view>

#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// The first tensor that holds all experts of a layer, as the modules of transformers 5 have it:
/// `….experts.gate_up_proj` [experts, 2 · inner, hidden] beside `….experts.down_proj` [experts,
/// hidden, inner]. Empty if there is none. The hub's own stacked experts (Qwen3-VL's, Llama 4's)
/// have their last two dimensions the other way round.
std::string_view fused_experts_of(const Plan& plan);

/// Gives experts that are held together, and what lies around them, the hub's names and shapes:
/// rows of the stored tensors, or the same with two dimensions exchanged; no byte is touched.
/// `config_text` is the model's configuration, `where` names it. Changes nothing where there are
/// none, where the configuration (of the model, or of the text model that is a part of it) is of
/// another family, where more lies below them (scales) or has one of their names, where 5.x could
/// not tell that dimensions are exchanged, which it does by their sizes, or where so many ranks cut
/// them along another dimension than the experts that the plan would take too much memory.
/// kCorruption where the text is no JSON, or where the files are too small for so many experts.
Status take_expert_names(Plan& plan, std::string_view config_text, const std::string& where);

}  // namespace evalcar::checkpoint
