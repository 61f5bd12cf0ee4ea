#include "evaluator/engine/picture_queue.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <utility>

namespace evalcar::engine {
namespace {

std::int64_t elements_of(const vision::ProcessorSettings& processor) {
  return std::int64_t{3} * processor.patch_size * processor.patch_size;
}

}  // namespace

std::int64_t patches_of(const vision::PreparedSize& size) {
  return std::int64_t{size.grid_t} * size.grid_h * size.grid_w;
}

Result<PatchRows> load_patches(const ImageSource& images,
                               const vision::ProcessorSettings& processor, std::size_t index,
                               const PatchMemory& memory) {
  EVALCAR_ASSIGN_OR_RETURN(const vision::PreparedImage image, images.load(index));
  const vision::PreparedSize size = images.size_of(index);
  const vision::ImageSize pixels = vision::pixels_of(size, processor);
  if (image.grid_t != size.grid_t || image.grid_h != size.grid_h || image.grid_w != size.grid_w ||
      image.height != pixels.height || image.width != pixels.width ||
      image.rgb.size() !=
          static_cast<std::size_t>(image.height) * static_cast<std::size_t>(image.width) * 3)
    return make_error(ErrorCode::kInternal,
                      "picture " + std::to_string(index) + " is not of the promised size");
  PatchRows rows{
      .values = nullptr, .patches = patches_of(size), .elements = elements_of(processor)};
  const auto count = static_cast<std::size_t>(rows.patches * rows.elements);
  rows.values = memory ? memory(count) : std::make_shared_for_overwrite<float[]>(count);
  vision::write_patches(image, processor, rows.values.get());
  return rows;
}

PictureQueue::PictureQueue(const ImageSource& images, const vision::ProcessorSettings& processor,
                           std::vector<PicturePlace> order, PictureQueueOptions options)
    : images_(images),
      processor_(processor),
      order_(std::move(order)),
      options_(std::move(options)) {
  const auto count =
      std::min(static_cast<std::size_t>(std::max(options_.threads, 0)), order_.size());
  for (std::size_t i = 0; i < count; ++i)
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

PictureQueue::~PictureQueue() {
  for (std::jthread& thread : threads_) thread.request_stop();  // all at once, then joined
}

std::uint64_t PictureQueue::bytes_of(std::size_t position) const {
  return static_cast<std::uint64_t>(patches_of(images_.size_of(order_[position].index)) *
                                    elements_of(processor_)) *
         sizeof(float);
}

// Positions are begun in order, so the one that is waited for never waits for room behind later
// ones.
bool PictureQueue::may_start() const {
  return next_ < order_.size() && (held_ == 0 || held_ + bytes_of(next_) <= options_.bytes);
}

Result<PatchRows> PictureQueue::make(std::size_t index) const {
  try {
    return load_patches(images_, processor_, index, options_.memory);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kUnavailable,
                      "out of memory while preparing picture " + std::to_string(index));
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kInternal,
                      "picture " + std::to_string(index) + ": " + error.what());
  }
}

void PictureQueue::make_next(std::unique_lock<std::mutex>& lock) {
  const std::size_t position = next_++;
  held_ += bytes_of(position);
  lock.unlock();
  Result<PatchRows> made = make(order_[position].index);
  if (options_.prepared) options_.prepared();
  lock.lock();
  if (position < front_) {
    held_ -= bytes_of(position);
  } else {
    ready_.emplace(position, std::move(made));
  }
  changed_.notify_all();
}

void PictureQueue::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return may_start() || next_ >= order_.size(); }) &&
         next_ < order_.size() && !stop.stop_requested()) {
    make_next(lock);
  }
}

// Drops what was made for the positions before `end`.
void PictureQueue::pass(std::size_t end) {
  for (; front_ < end; ++front_) {
    if (ready_.erase(front_) > 0) held_ -= bytes_of(front_);
  }
  next_ = std::max(next_, front_);
  changed_.notify_all();
}

Result<PatchRows> PictureQueue::take(const PicturePlace& place, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  std::size_t begin = front_;
  while (begin < order_.size() && order_[begin].pack < place.pack) ++begin;
  std::size_t position = begin;
  while (position < order_.size() && order_[position].pack == place.pack &&
         order_[position] != place) {
    ++position;
  }
  const bool planned = position < order_.size() && order_[position] == place;
  pass(planned ? position : begin);
  if (!planned) {
    lock.unlock();
    return make(place.index);
  }
  while (!ready_.contains(position)) {
    if (stop.stop_requested())
      return make_error(ErrorCode::kCancelled, "stopped while reading pictures");
    if (may_start()) {
      make_next(lock);
    } else {
      changed_.wait(lock, stop, [&] { return ready_.contains(position) || may_start(); });
    }
  }
  Result<PatchRows> taken = std::move(ready_.at(position));
  pass(position + 1);
  return taken;
}

}  // namespace evalcar::engine
