// What a device name means on this machine.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "evaluator/engine/engine.h"

namespace evalcar::engine {

struct ResolvedDevice {
  c10::Device device = c10::Device(c10::kCPU);
  DeviceDescription description;
};
Result<ResolvedDevice> resolve_device(const std::string& name);

/// Bytes that caches may take: on a GPU what is free within `utilization` of its memory, on the CPU
/// a quarter of what the machine (and the control group) has available.
std::uint64_t cache_budget_bytes(c10::Device device, double utilization);

/// Cores that this process may run on.
int usable_cores();

}  // namespace evalcar::engine
