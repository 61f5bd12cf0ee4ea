// How much is computed together: as asked for or as the device takes by default, less where memory
// ran out. Without libtorch.
#pragma once

#include <cstdint>
#include <optional>

namespace evalcar::engine {

struct Width {
  std::int64_t sequences = 1;
  std::int64_t prefill_tokens = 1;
  std::int64_t patches = 1;
};

/// What memory allows of it. Not thread-safe.
class FittingWidth {
 public:
  /// `full` with what did not fit taken off.
  Width of(const Width& full) const;
  /// Memory ran out with `sequences` together: halves everything that is computed together. Returns
  /// how many may go together now; 0: there is nothing left to halve.
  std::int64_t shrink(const Width& full, std::int64_t sequences);
  /// What took the memory may be gone: each run is twice as wide as the last one could be.
  void widen(const Width& full);

 private:
  std::optional<Width> most_;  // absent: all of it
};

}  // namespace evalcar::engine
