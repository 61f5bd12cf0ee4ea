// What a device name means on this machine.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "evaluator/engine/cache_budget.h"
#include "evaluator/engine/engine.h"

namespace evalcar::engine {

struct ResolvedDevice {
  c10::Device device = c10::Device(c10::kCPU);
  DeviceDescription description;
};
Result<ResolvedDevice> resolve_device(const std::string& name);

/// Gives what is kept for later allocations back, on a GPU to the driver, on the CPU to the system,
/// so that others (and gpu_memory()) see it as free. Never throws.
void release_unused_memory(c10::Device device);
/// The same of the host's memory that libtorch keeps page-locked for copies to a GPU.
void release_page_locked_memory(c10::Device device);

/// From now on libtorch holds no more than that share of a GPU's memory for this process, what it
/// keeps for later allocations included: what would be more throws c10::OutOfMemoryError. CUDA's
/// own comes on top. May throw c10::Error.
void limit_gpu_memory(c10::Device device, double share);

/// What a GPU has, for a checkpoint of `weights` bytes. Throws c10::Error when the device does not
/// answer.
GpuMemory gpu_memory(c10::Device device, double utilization, std::uint64_t weights);
/// On the CPU a quarter of what the machine (and the control group) has available, `given_back` of
/// this process's own among it: what it holds there and lets go where memory runs out. There
/// nothing is planned beyond what is free: the memory is everybody's.
CacheBudget host_cache_budget(std::uint64_t given_back = 0);

/// Bytes of the machine's memory (and the control group's) that are free or can be freed.
std::uint64_t free_host_memory();
/// What libtorch computes with on every GPU of this process: float32 is never TF32, attention never
/// cuDNN's. Before the first run; any number of times.
void settle_gpu_numbers();

/// Cores that this process may run on, no more than the quota of its control groups comes to.
int usable_cores();

}  // namespace evalcar::engine
