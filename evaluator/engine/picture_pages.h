// Memory of the host for pictures on their way to a GPU: written by the threads that make them
// ready, copied from while the host goes on, and used again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "evaluator/weights/page_locked.h"

namespace evalcar::engine {

/// Page-locked where the driver grants it, at most so many bytes of it; beyond that any memory.
/// Outlives all that it gave. Ends on the thread that calls sent(), when all copies are through.
class PicturePages {
 public:
  PicturePages(at::Device device, std::uint64_t most_bytes)
      : device_(device), most_bytes_(most_bytes) {}
  PicturePages(const PicturePages&) = delete;
  PicturePages& operator=(const PicturePages&) = delete;

  /// For so many float32, with any content. Thread-safe; throws std::bad_alloc.
  std::shared_ptr<float[]> take(std::size_t count);

  /// Copies out of what take() gave were enqueued on the calling thread's current stream: nobody is
  /// given that memory before they are through. Throws what libtorch throws.
  void sent(const float* values);

  /// Page-locked bytes that were taken, in use or not. Thread-safe.
  std::uint64_t bytes() const;

 private:
  struct Page {
    weights::PageLocked memory;
    std::uint64_t bytes = 0;
    bool in_use = true;
    std::optional<c10::Event> sent;  ///< once anything was

    float* values() const { return static_cast<float*>(memory.bytes().data_ptr()); }
  };
  Page* free_page(std::uint64_t bytes);
  Page* new_page(std::uint64_t bytes, std::unique_lock<std::mutex>& lock);

  const at::Device device_;
  const std::uint64_t most_bytes_;
  mutable std::mutex mutex_;  // guards what follows
  std::uint64_t bytes_ = 0;
  std::list<Page> pages_;  // where they are they stay
};

}  // namespace evalcar::engine
