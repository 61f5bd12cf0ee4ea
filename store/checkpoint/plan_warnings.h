// What people should know of a plan that can be made and read.
#pragma once

#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// In words, each of one line, none if there is nothing to say:
/// - the files are probably of two saves (save_times.h);
/// - extra states of modules are left out (Plan::extra_states);
/// - so is what lies beside the model's tensors (Plan::left_out);
/// - the names are torchtitan's, which transformers does not load (torchtitan_names.h);
/// - experts lie together as only transformers 5 loads them (expert_names.h).
std::vector<std::string> warnings_of(const FileSystem& files, const Plan& plan);

}  // namespace evalcar::checkpoint
