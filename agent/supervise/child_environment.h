// What a child of ours is to know of the environment.
//
// The agent is often started beside a trainer, in a Slurm step or from a launcher's script, and
// then holds variables that tell the trainer's processes which of many they are. A child that
// believed them would wait for ranks that never come, or take a GPU of the trainer's. And it shares
// the trainer's cores, where a thread that waits for another one must let go of its core.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace evalcar::supervise {

/// Set by a launcher (torchrun, accelerate, DeepSpeed, Slurm, MPI) for one of its processes.
bool is_rank_variable(std::string_view name);

/// `environment` ("NAME=value", ended by null; as ::environ) without its rank variables, and with
/// how long a thread of OpenMP spins (GOMP_SPINCOUNT), unless it says that or OMP_WAIT_POLICY.
/// CUDA_VISIBLE_DEVICES stays: it says which GPU is ours. CUDA_DEVICE_ORDER is left as it is: by a
/// training that starts the agent (EvalcarCallback(start=True, eval_device=…)) GPUs are named with
/// its own numbers.
std::vector<std::string> child_environment(const char* const* environment);

/// The rank variables of `environment` as "NAME=value", sorted: for people.
std::vector<std::string> rank_variables(const char* const* environment);

}  // namespace evalcar::supervise
