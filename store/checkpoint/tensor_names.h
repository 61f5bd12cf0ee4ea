// The names under which a plan's tensors are known: those of the model's own modules, whatever was
// wrapped around these while they were trained.
//
// torch.compile, FSDP, activation checkpointing and DistributedDataParallel put modules of their
// own into a model, whose names get into the state_dict. transformers knows none of them: a folder
// with such names loads with every weight drawn anew, and only a warning says so.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// The name without the components `_orig_mod` (torch.compile), `_checkpoint_wrapped_module` and
/// `_fsdp_wrapped_module`, wherever they are. A name of nothing else is kept.
std::string unwrapped_name(std::string_view name);

/// The names without wrappers' components; and without leading `module`s
/// (DistributedDataParallel) as long as all of them begin with one: a model may have a module of
/// that name itself.
std::vector<std::string> unwrapped_names(const std::vector<std::string_view>& names);

/// Whether a name is that of a module's get_extra_state(): whatever it holds, it is no weight.
bool is_extra_state(std::string_view name);

/// Gives a plan's tensors their unwrapped_names(), and those of a SigLIP or CLIP tower the names
/// that all releases of transformers load: 5.x stores the modules of `vision_tower` right below it,
/// up to 4.57 and on the hub they lie in its `vision_model`, and 4.57 would draw the whole tower
/// anew. Sorts them by these, and moves extra states from the tensors to `plan.extra_states`.
/// kCorruption if two tensors get the same name: which of them the model's is cannot be told; and
/// for a control character in a name.
/// Before find_ties(), whose indices it would break.
Status settle_names(Plan& plan);

}  // namespace evalcar::checkpoint
