#include "evaluator/engine/picture_pages.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace evalcar::engine {
namespace {

constexpr std::uint64_t kBoundary = 256;  // of parts

}  // namespace

// An event that ends leaves the thread on the device that it was on, by a call that gives that one
// a context: here it would be the first GPU, the trainer's.
PicturePages::~PicturePages() {
  c10::OptionalDeviceGuard guard;
  try {
    if (!device_.is_cpu()) guard.reset_device(device_);
    parts_.clear();
    slabs_.clear();
  } catch (const c10::Error&) {  // a lost device: its process has to be replaced anyway
  }
}

// What is still copied from is passed over: there is other memory, and waiting for the device is
// what this class is there to avoid.
bool PicturePages::is_free(const Part& part) {
  return !part.in_use && (!part.sent || part.sent->query());
}

void PicturePages::join_free_parts() {
  for (auto part = parts_.begin(); part != parts_.end(); ++part) {
    if (!is_free(*part)) continue;
    part->sent.reset();
    for (auto next = std::next(part);
         next != parts_.end() && next->slab == part->slab && is_free(*next);
         next = parts_.erase(next)) {
      part->bytes += next->bytes;
    }
  }
}

// The first that is large enough, cut to what is asked for: parts are given in about the order in
// which they come back, so that the rest of a slab stays in one piece.
PicturePages::Parts::iterator PicturePages::free_part(std::uint64_t bytes) {
  join_free_parts();
  const auto part = std::ranges::find_if(
      parts_, [&](const Part& each) { return is_free(each) && each.bytes >= bytes; });
  if (part == parts_.end()) return part;
  if (part->bytes > bytes) {
    parts_.insert(std::next(part), Part{.slab = part->slab,
                                        .begin = part->begin + bytes,
                                        .bytes = part->bytes - bytes,
                                        .in_use = false,
                                        .sent = {}});
    part->bytes = bytes;
  }
  part->in_use = true;
  return part;
}

bool PicturePages::add_slab(std::unique_lock<std::mutex>& lock) {
  if (bytes_ + kSlab > most_bytes_ || bytes_ + kSlab > (free_bytes_() + bytes_) / 4) return false;
  bytes_ += kSlab;
  lock.unlock();  // the driver takes its time
  std::optional<weights::PageLocked> memory;
  try {
    memory.emplace(static_cast<std::int64_t>(kSlab), device_);
  } catch (const c10::Error&) {  // no memory at all, or a lost device: whoever copies is told
  }
  lock.lock();
  if (!memory) {
    bytes_ -= kSlab;
    return false;
  }
  slabs_.push_back(*std::move(memory));
  parts_.push_back(
      {.slab = &slabs_.back(), .begin = 0, .bytes = kSlab, .in_use = false, .sent = {}});
  return true;
}

std::shared_ptr<float[]> PicturePages::take(std::size_t count) {
  // A thread of its own has no device yet, and to ask for an event's state would give it the first
  // one, with a context there.
  c10::OptionalDeviceGuard guard;
  try {
    if (!device_.is_cpu()) guard.reset_device(device_);
  } catch (const c10::Error&) {  // a lost device: whoever copies is told
    return std::make_shared_for_overwrite<float[]>(count);
  }
  const std::uint64_t numbers = std::max<std::uint64_t>(std::uint64_t{count} * sizeof(float), 1);
  const std::uint64_t bytes = (numbers + kBoundary - 1) / kBoundary * kBoundary;
  if (bytes > kSlab) return std::make_shared_for_overwrite<float[]>(count);
  std::unique_lock lock(mutex_);
  auto part = parts_.end();
  try {
    part = free_part(bytes);
    if (part == parts_.end() && add_slab(lock)) part = free_part(bytes);
  } catch (const c10::Error&) {  // a lost device: whoever copies is told
    part = parts_.end();
  }
  const bool found = part != parts_.end();
  lock.unlock();
  if (!found) return std::make_shared_for_overwrite<float[]>(count);
  return {part->values(), [this, part](float*) {
            const std::lock_guard held(mutex_);
            part->in_use = false;
          }};
}

bool PicturePages::holds(const float* values) const {
  const std::lock_guard held(mutex_);
  return std::ranges::any_of(parts_, [&](const Part& part) { return part.is_at(values); });
}

void PicturePages::sent(const float* values) {
  if (device_.is_cpu()) return;  // copies are through when they return
  const std::lock_guard held(mutex_);
  const auto part =
      std::ranges::find_if(parts_, [&](const Part& each) { return each.is_at(values); });
  if (part == parts_.end()) return;
  part->sent.emplace(device_.type());
  part->sent->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

std::uint64_t PicturePages::bytes() const {
  const std::lock_guard held(mutex_);
  return bytes_;
}

}  // namespace evalcar::engine
