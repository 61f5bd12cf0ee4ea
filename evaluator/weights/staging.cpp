#include "evaluator/weights/staging.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <bit>
#include <cassert>

namespace evalcar::weights {

std::span<std::byte> Staging::next(std::size_t bytes) {
  assert(bytes <= most_);
  now_ = (now_ + 1) % buffers();
  Buffer& buffer = buffers_[now_];
  if (buffer.copied) buffer.copied->synchronize();
  if (!buffer.memory.bytes().defined())
    buffer.memory = PageLocked(static_cast<std::int64_t>(most_), device_);
  return {static_cast<std::byte*>(buffer.memory.bytes().data_ptr()), bytes};
}

void Staging::copy_to(const at::Tensor& place, at::ScalarType dtype) {
  Buffer& buffer = buffers_[now_];
  const auto bytes = place.numel() * static_cast<std::int64_t>(c10::elementSize(dtype));
  const at::Tensor part = buffer.memory.bytes().narrow(0, 0, bytes).view(dtype);
  if (device_.is_cpu()) {
    place.copy_(part);
    return;
  }
  if (dtype == place.scalar_type()) {
    place.copy_(part, /*non_blocking=*/true);
  } else {
    try {  // the host has better to do
      place.copy_(part.to(device_, dtype, /*non_blocking=*/true));
    } catch (const c10::OutOfMemoryError&) {
      place.copy_(part.to(place.scalar_type()));
    }
  }
  if (!buffer.copied) buffer.copied.emplace(device_.type());
  buffer.copied->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void Staging::finish() {
  for (Buffer& buffer : buffers_) {
    if (buffer.copied) buffer.copied->synchronize();
  }
}

std::uint64_t Staging::bytes(at::Device device, std::size_t most) {
  return device.is_cpu() ? most : 2 * std::bit_ceil(std::uint64_t{most});
}

}  // namespace evalcar::weights
