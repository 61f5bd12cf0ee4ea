// DeepSpeed's ZeRO partitions: the plan of the fp32 weights.
#pragma once

#include "store/checkpoint/deepspeed_files.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// What deepspeed's zero_to_fp32 (0.19.8) makes of the same files: master weights in fp32, frozen
/// parameters in their own dtype, floating buffers as fp32, shared parameters under every name.
/// Stage 1 and 2: a group of parameters is one flat vector, cut into a piece for each rank. Stage
/// 3: each parameter is flattened, padded and cut; a rank's groups follow each other. kUnavailable
/// where a rank's files are missing, kCorruption where the sizes do not add up.
Result<Plan> plan_deepspeed(const FileSystem& files, const Folder& folder,
                            const DeepspeedFiles& found);

}  // namespace evalcar::checkpoint
