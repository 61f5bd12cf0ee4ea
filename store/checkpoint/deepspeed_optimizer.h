// ZeRO's optimizer states (*_optim_states.pt): each rank's part of the flat fp32 vectors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/checkpoint/deepspeed_state.h"

namespace evalcar::checkpoint {

/// What one rank's file says.
struct DeepspeedOptimizer {
  std::int64_t stage = 0;
  std::int64_t partitions = 0;
  std::vector<StoredTensor> groups;  ///< this rank's part of each flat fp32 vector
  std::vector<std::vector<std::int64_t>>
      paddings;  ///< behind each parameter of a group; stage 1, 2; of the first rank alone
  std::size_t file = 0;
};

/// Reads the files of all ranks, by rank; at least one. kUnavailable where some are missing,
/// kCorruption where they contradict each other, kUnsupported for what is no ZeRO state and for
/// expert parallelism.
Result<std::vector<DeepspeedOptimizer>> read_deepspeed_optimizers(
    DeepspeedStates& states, const std::vector<std::string>& names);

}  // namespace evalcar::checkpoint
