// Which of the chunks that are read one after another the disk is told of ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace evalcar::checkpoint {

/// A window of so many bytes that moves over the chunks. Each chunk comes into it once and leaves
/// it once, however many small ones it holds. Not thread-safe.
class HintWindow {
 public:
  /// `bytes_of(i)`: what chunk i of `chunks` takes; the same whenever it is asked.
  HintWindow(std::size_t chunks, std::uint64_t bytes,
             std::function<std::uint64_t(std::size_t)> bytes_of);

  /// Chunk `turn` is read now; turns come in order, from 0. Gives the chunks behind it, from the
  /// first to behind the last, of which the disk is to be told now: those that were not told of
  /// yet, up to the one that fills the window.
  std::pair<std::size_t, std::size_t> advance(std::size_t turn);

 private:
  std::size_t chunks_;
  std::uint64_t bytes_;
  std::function<std::uint64_t(std::size_t)> bytes_of_;
  std::size_t end_ = 0;      // behind the last chunk that was told of
  std::uint64_t ahead_ = 0;  // of the chunks behind the last turn and before end_
};

}  // namespace evalcar::checkpoint
