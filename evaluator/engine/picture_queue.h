// Pictures made ready ahead of the device: while one pack is computed, threads of their own read,
// decode, resize and cut the pictures of the packs that follow. Without libtorch.
//
// What comes out does not depend on the threads: the order is fixed before the run, each picture is
// a function of the source alone, and the taker asks for them one by one. Threads decide only how
// long it waits.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "evaluator/engine/engine.h"

namespace evalcar::engine {

/// A picture as the tower reads it: (patches, elements) float32, row-major.
struct PatchRows {
  std::shared_ptr<float[]> values;
  std::int64_t patches = 0;
  std::int64_t elements = 0;  ///< of a patch: 3 · side²
};

/// Rows that a picture has there.
std::int64_t patches_of(const vision::PreparedSize& size);

/// Memory for so many float32, with any content. Called from any thread; may throw std::bad_alloc.
using PatchMemory = std::function<std::shared_ptr<float[]>(std::size_t)>;

/// Loads picture `index` and cuts it into patches, in memory of `memory` or, where that is empty,
/// of the heap. kInternal if it is not of the promised size. Thread-safe.
Result<PatchRows> load_patches(const ImageSource& images,
                               const vision::ProcessorSettings& processor, std::size_t index,
                               const PatchMemory& memory);

/// A picture that is made for a pack.
struct PicturePlace {
  std::size_t pack = 0;
  std::size_t index = 0;  ///< in the ImageSource
  bool operator==(const PicturePlace&) const = default;
};

struct PictureQueueOptions {
  int threads = 0;                                 ///< 0: each is made when it is asked for
  std::uint64_t bytes = std::uint64_t{64} << 20U;  ///< held ready; one picture may exceed it
  std::function<void()> prepared;                  ///< after each, from any thread; may be empty
  PatchMemory memory;                              ///< outlives the pictures; empty: the heap
};

/// take() is for one thread.
class PictureQueue {
 public:
  /// Starts the threads. The references must outlive it.
  PictureQueue(const ImageSource& images, const vision::ProcessorSettings& processor,
               std::vector<PicturePlace> order, PictureQueueOptions options);
  /// Waits for the pictures that are being made, and drops the rest.
  ~PictureQueue();
  PictureQueue(const PictureQueue&) = delete;
  PictureQueue& operator=(const PictureQueue&) = delete;

  /// The picture at `place`, or what is wrong with it. Places are asked for in their order; those
  /// passed over are dropped, and one that is not in the order is made on the spot. While it waits,
  /// the calling thread makes pictures too. kCancelled soon after `stop`.
  Result<PatchRows> take(const PicturePlace& place, const std::stop_token& stop);

 private:
  void work(const std::stop_token& stop);
  bool may_start() const;
  void make_next(std::unique_lock<std::mutex>& lock);
  void pass(std::size_t end);
  Result<PatchRows> make(std::size_t index) const;
  std::uint64_t bytes_of(std::size_t position) const;

  const ImageSource& images_;
  const vision::ProcessorSettings& processor_;
  const std::vector<PicturePlace> order_;
  const PictureQueueOptions options_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::size_t front_ = 0;   // positions before it are taken or passed over
  std::size_t next_ = 0;    // positions before it are begun
  std::uint64_t held_ = 0;  // bytes of pictures that are begun and neither taken nor dropped
  std::map<std::size_t, Result<PatchRows>> ready_;  // by position
  std::vector<std::jthread> threads_;               // last: they use the members above
};

}  // namespace evalcar::engine
