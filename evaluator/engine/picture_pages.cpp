#include "evaluator/engine/picture_pages.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>

namespace evalcar::engine {

// The smallest that is large enough. What is still copied from is passed over: there is other
// memory, and waiting for the device is what this class is there to avoid.
PicturePages::Page* PicturePages::free_page(std::uint64_t bytes) {
  Page* best = nullptr;
  for (Page& page : pages_) {
    if (page.in_use || page.bytes < bytes || (best != nullptr && best->bytes <= page.bytes))
      continue;
    if (!page.sent || page.sent->query()) best = &page;
  }
  if (best != nullptr) best->in_use = true;
  return best;
}

PicturePages::Page* PicturePages::new_page(std::uint64_t bytes,
                                           std::unique_lock<std::mutex>& lock) {
  const std::uint64_t size = std::bit_ceil(std::max(bytes, std::uint64_t{4096}));
  if (bytes_ > most_bytes_ || size > most_bytes_ - bytes_) return nullptr;
  bytes_ += size;
  lock.unlock();  // the driver takes its time
  std::optional<weights::PageLocked> memory;
  try {
    memory.emplace(static_cast<std::int64_t>(size), device_);
  } catch (const c10::Error&) {  // no memory at all, or a lost device: whoever copies is told
  }
  lock.lock();
  if (!memory) {
    bytes_ -= size;
    return nullptr;
  }
  pages_.push_back({.memory = *std::move(memory), .bytes = size, .in_use = true, .sent = {}});
  return &pages_.back();
}

std::shared_ptr<float[]> PicturePages::take(std::size_t count) {
  const std::uint64_t bytes = std::uint64_t{count} * sizeof(float);
  std::unique_lock lock(mutex_);
  Page* page = nullptr;
  try {
    page = free_page(bytes);
    if (page == nullptr) page = new_page(bytes, lock);
  } catch (const c10::Error&) {  // a lost device: whoever copies is told
  }
  lock.unlock();
  if (page == nullptr) return std::make_shared_for_overwrite<float[]>(count);
  return {page->values(), [this, page](float*) {
            const std::lock_guard guard(mutex_);
            page->in_use = false;
          }};
}

void PicturePages::sent(const float* values) {
  if (device_.is_cpu()) return;  // copies are through when they return
  const std::lock_guard guard(mutex_);
  const auto page = std::ranges::find(pages_, values, &Page::values);
  if (page == pages_.end()) return;  // the driver has copied it into memory of its own
  if (!page->sent) page->sent.emplace(device_.type());
  page->sent->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

std::uint64_t PicturePages::bytes() const {
  const std::lock_guard guard(mutex_);
  return bytes_;
}

}  // namespace evalcar::engine
