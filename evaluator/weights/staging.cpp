#include "evaluator/weights/staging.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace evalcar::weights {

at::Tensor Staging::allocate(std::size_t bytes) {
  const auto options = at::TensorOptions().dtype(at::kByte);
  const auto size = static_cast<std::int64_t>(bytes);
  if (!device_.is_cpu() && page_locked_) {
    try {
      return at::empty({size}, options.pinned_memory(true));
    } catch (const c10::Error&) {  // too little of it may be locked: copied by the driver's own
      page_locked_ = false;
    }
  }
  return at::empty({size}, options);
}

std::span<std::byte> Staging::next(std::size_t bytes) {
  now_ = (now_ + 1) % buffers();
  Buffer& buffer = buffers_[now_];
  if (buffer.copied) buffer.copied->synchronize();
  if (!buffer.memory.defined() || static_cast<std::size_t>(buffer.memory.numel()) < bytes) {
    buffer.memory = at::Tensor();  // given back before more is asked for
    buffer.memory = allocate(bytes);
  }
  return {static_cast<std::byte*>(buffer.memory.data_ptr()), bytes};
}

void Staging::copy_to(const at::Tensor& place, at::ScalarType dtype) {
  Buffer& buffer = buffers_[now_];
  const auto bytes = place.numel() * static_cast<std::int64_t>(c10::elementSize(dtype));
  const at::Tensor part = buffer.memory.narrow(0, 0, bytes).view(dtype);
  if (device_.is_cpu()) {
    place.copy_(part);
    return;
  }
  // Another dtype is cast on the device: the host has better to do.
  place.copy_(dtype == place.scalar_type() ? part : part.to(device_, dtype, /*non_blocking=*/true),
              /*non_blocking=*/true);
  if (!buffer.copied) buffer.copied.emplace(device_.type());
  buffer.copied->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void Staging::finish() {
  for (Buffer& buffer : buffers_) {
    if (buffer.copied) buffer.copied->synchronize();
  }
}

std::size_t Staging::most_bytes(at::Device device, std::size_t part) {
  return device.is_cpu() ? part : 2 * part;
}

}  // namespace evalcar::weights
