// Memory for what stays longer than a batch: weights, their copies, the cache of keys and values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace evalcar::weights {

/// (bytes) uint8 on `device`, of any content. On the host a large one is a mapping of its own, in
/// huge pages where the kernel has them: it is the system's again as soon as the tensor is gone,
/// whatever the process keeps of what it frees. Any thread. Throws c10::Error as at::empty() does.
at::Tensor lasting_memory(std::int64_t bytes, at::Device device);

}  // namespace evalcar::weights
