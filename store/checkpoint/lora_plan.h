// A LoRA adapter over its base model: the plan of the merged weights.
#pragma once

#include <string>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/lora_config.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// "adapter_model.safetensors", else "adapter_model.bin"; empty if neither is there.
std::string adapter_file(const Folder& folder);

/// Reads and parses adapter_config.json. kUnavailable if it is missing or ends too early.
Result<LoraConfig> read_lora_config(const FileSystem& files, const Folder& folder);

/// The adapter's tensors, pieces in `plan.files`: added to what the plan holds.
Status add_adapter(const FileSystem& files, const Folder& folder, Plan& plan);

/// The base model's weights with the adapter's updates and replacements, under the base's names
/// and in its dtypes: what peft's `PeftModel.from_pretrained(base, adapter).merge_and_unload()`
/// holds where the base was loaded in the dtype that it is stored in. Names of modules may come
/// from another generation of transformers than the base's files. kInvalidArgument where the
/// adapter and the base do not belong together, kCorruption where the adapter contradicts itself,
/// kUnsupported by name for updates of tied weights, which a merge cannot express.
/// The adapter's tensors are in its own file, or in the folder `dcp` if that is not null.
Result<Plan> plan_lora(const FileSystem& files, const Folder& adapter, const Folder* dcp,
                       const Folder& base);

}  // namespace evalcar::checkpoint
