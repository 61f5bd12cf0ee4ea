// Parts of tensors on their way from the files to the arena's device, through memory of the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "evaluator/weights/page_locked.h"

namespace evalcar::weights {

/// One reading thread's. On the way to a GPU there are two buffers, so that one is filled while the
/// other is copied; to the host's own memory, one. Copies are enqueued on the stream that is
/// current on the calling thread, which must be the same all the time. Throws what libtorch throws.
class Staging {
 public:
  /// For parts of at most `most` bytes. Memory is taken with the first one.
  Staging(at::Device device, std::size_t most) : device_(device), most_(most) {}

  /// Memory of the next part, for copy_to(): waits until what was last copied out of it is through.
  std::span<std::byte> next(std::size_t bytes);

  /// Copies the part that next() gave, numbers of `dtype`, to `place`: flat, of as many elements,
  /// of any floating-point dtype. Its memory is not to be written to until next() gives it again.
  void copy_to(const at::Tensor& place, at::ScalarType dtype);

  /// Waits for all copies. To be called before the arena's memory is given to anybody else, whether
  /// or not the reading went well.
  void finish();

  /// What one takes of the host's memory. Page-locked memory comes in powers of two.
  static std::uint64_t bytes(at::Device device, std::size_t most);

 private:
  struct Buffer {
    PageLocked memory;
    std::optional<c10::Event> copied;
  };

  std::size_t buffers() const { return device_.is_cpu() ? 1 : 2; }

  at::Device device_;
  std::size_t most_;
  std::array<Buffer, 2> buffers_;
  std::size_t now_ = 0;
};

}  // namespace evalcar::weights
