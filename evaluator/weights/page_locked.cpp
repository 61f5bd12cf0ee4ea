#include "evaluator/weights/page_locked.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <utility>

namespace evalcar::weights {

PageLocked::PageLocked(std::int64_t bytes, at::Device device) : device_(device) {
  const auto options = at::TensorOptions().dtype(at::kByte);
  if (!device.is_cpu()) {
    try {
      memory_ = at::empty({bytes}, options.pinned_memory(true));
      return;
    } catch (const c10::Error&) {  // no more may be locked: the driver copies by its own buffers
    }
  }
  memory_ = at::empty({bytes}, options);
}

PageLocked::PageLocked(PageLocked&& other) noexcept
    : memory_(std::exchange(other.memory_, at::Tensor())), device_(other.device_) {}

PageLocked& PageLocked::operator=(PageLocked&& other) noexcept {
  if (this == &other) return *this;
  release();
  memory_ = std::exchange(other.memory_, at::Tensor());
  device_ = other.device_;
  return *this;
}

void PageLocked::release() noexcept {
  if (!memory_.defined()) return;
  if (!device_.is_cpu()) {
    try {
      const c10::impl::VirtualGuardImpl streams(device_.type());
      streams.synchronizeStream(streams.getStream(device_));
    } catch (...) {
      (void)memory_.unsafeReleaseTensorImpl();
      return;
    }
  }
  memory_ = at::Tensor();
}

}  // namespace evalcar::weights
