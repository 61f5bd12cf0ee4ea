// Memory of a kernel's task: not filled, and at the beginning of a cache's line.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace evalcar::kernels {

template <typename T>
struct FreedAligned {
  void operator()(T* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};
template <typename T>
using AlignedMemory = std::unique_ptr<T[], FreedAligned<T>>;

/// Of `count` T, numbers of some kind. May throw std::bad_alloc.
template <typename T>
AlignedMemory<T> aligned_memory(std::int64_t count) {
  return AlignedMemory<T>(new (std::align_val_t{64}) T[static_cast<std::size_t>(count)]);
}

}  // namespace evalcar::kernels
