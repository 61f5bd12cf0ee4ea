// Memory of the host that a GPU copies from while the host goes on.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace evalcar::weights {

/// Page-locked where `device` is a GPU and the driver grants it, else as any memory. Its end throws
/// nothing: after a device fault libtorch's allocator would, out of a destructor, and the process
/// would be gone before anybody is told of the fault. Such memory is left to the process, which has
/// to be replaced anyway. Ends on a thread whose current stream is that of the copies.
class PageLocked {
 public:
  PageLocked() = default;
  /// May throw what libtorch throws.
  PageLocked(std::int64_t bytes, at::Device device);
  PageLocked(PageLocked&& other) noexcept;
  PageLocked& operator=(PageLocked&& other) noexcept;
  PageLocked(const PageLocked&) = delete;
  PageLocked& operator=(const PageLocked&) = delete;
  ~PageLocked() { release(); }

  /// (bytes) uint8; undefined where there is none.
  const at::Tensor& bytes() const { return memory_; }

 private:
  void release() noexcept;

  at::Tensor memory_;
  at::Device device_ = at::kCPU;
};

}  // namespace evalcar::weights
