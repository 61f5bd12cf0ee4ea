// An adapter's tensors laid over the plan of their base model: updates of modules, and tensors that
// take the place of others.
#pragma once

#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/checkpoint/lora_config.h"
#include "store/checkpoint/lora_ties.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// Changes `base` into the plan of the merged weights; errors as plan_lora(), which begin with
/// `where`, the adapter's file. The files that the pieces of `adapter` count are those of `base`.
/// `files` is read where two tensors of the base have to be one.
Status lay_adapter_over(const FileSystem& files, const std::string& where, const LoraConfig& config,
                        std::vector<TensorPlan> adapter, const BaseTies& ties, Plan& base);

}  // namespace evalcar::checkpoint
