// Parts of tensors on their way from the files to the arena's device, through memory of the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>

namespace evalcar::weights {

/// One reading thread's. On the way to a GPU there are two buffers, page-locked where the driver
/// grants that, so that one is filled while the other is copied; to the host's own memory, one.
/// Copies are enqueued on the stream that is current on the calling thread, which must be the same
/// all the time. Throws what libtorch throws.
class Staging {
 public:
  explicit Staging(at::Device device) : device_(device) {}

  /// Memory of the next part, for copy_to(): waits until what was last copied out of it is through.
  std::span<std::byte> next(std::size_t bytes);

  /// Copies the part that next() gave, numbers of `dtype`, to `place`: flat, of as many elements,
  /// of any floating-point dtype. Its memory is not to be written to until next() gives it again.
  void copy_to(const at::Tensor& place, at::ScalarType dtype);

  /// Waits for all copies. To be called before the arena's memory is given to anybody else, whether
  /// or not the reading went well.
  void finish();

  /// What the buffers of one thread take at most where no part is larger than `part` bytes.
  static std::size_t most_bytes(at::Device device, std::size_t part);

 private:
  struct Buffer {
    at::Tensor memory;  // (bytes) uint8
    std::optional<c10::Event> copied;
  };

  std::size_t buffers() const { return device_.is_cpu() ? 1 : 2; }
  at::Tensor allocate(std::size_t bytes);

  at::Device device_;
  bool page_locked_ = true;  // until the driver refuses
  std::array<Buffer, 2> buffers_;
  std::size_t now_ = 0;
};

}  // namespace evalcar::weights
