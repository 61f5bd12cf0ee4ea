// Memory of the host for pictures on their way to a GPU: written by the threads that make them
// ready, copied from by the device itself, and used again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "evaluator/weights/page_locked.h"

namespace evalcar::engine {

/// Page-locked where the driver grants it: slabs of kSlab, taken as they are needed and kept, at
/// most so many bytes and never more than a quarter of what the host has free. What has no place in
/// them is of the heap. Outlives all that it gave, and every run. Ends when all copies are through.
class PicturePages {
 public:
  static constexpr std::uint64_t kSlab = std::uint64_t{64} << 20U;

  /// `free_bytes`: what the host has free.
  PicturePages(at::Device device, std::uint64_t most_bytes,
               std::function<std::uint64_t()> free_bytes)
      : device_(device), most_bytes_(most_bytes), free_bytes_(std::move(free_bytes)) {}
  PicturePages(const PicturePages&) = delete;
  PicturePages& operator=(const PicturePages&) = delete;
  ~PicturePages();

  /// For so many float32, with any content. Thread-safe; throws std::bad_alloc.
  std::shared_ptr<float[]> take(std::size_t count);

  /// Whether take() gave it of a slab.
  bool holds(const float* values) const;

  /// Copies out of what lies in a slab were enqueued on the calling thread's current stream: nobody
  /// is given that memory before they are through. Throws what libtorch throws.
  void sent(const float* values);

  /// Bytes of the slabs, in use or not. Thread-safe.
  std::uint64_t bytes() const;

 private:
  /// A part of a slab; those of a slab follow one another, in their order.
  struct Part {
    const weights::PageLocked* slab = nullptr;
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
    bool in_use = false;
    std::optional<c10::Event> sent;  ///< copies that may still read it

    float* values() const {
      return reinterpret_cast<float*>(static_cast<std::byte*>(slab->bytes().data_ptr()) + begin);
    }
    bool is_at(const float* given) const { return in_use && values() == given; }
  };
  using Parts = std::list<Part>;  // where they are they stay

  static bool is_free(const Part& part);
  void join_free_parts();
  Parts::iterator free_part(std::uint64_t bytes);
  bool add_slab(std::unique_lock<std::mutex>& lock);

  const at::Device device_;
  const std::uint64_t most_bytes_;
  const std::function<std::uint64_t()> free_bytes_;
  mutable std::mutex mutex_;  // guards what follows
  std::uint64_t bytes_ = 0;
  std::list<weights::PageLocked> slabs_;
  Parts parts_;
};

}  // namespace evalcar::engine
