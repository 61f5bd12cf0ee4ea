// The next checkpoint's weights, read while the last one is evaluated.
//
// They are read into memory of their own, as a load would read them, and taken by the load that
// asks for just them. Nothing else depends on it: what cannot be read, does not fit or is not
// current any more is loaded as ever, and what is computed meanwhile goes before it.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "evaluator/weights/shadow.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::engine {

/// Thread-safe. Holds one checkpoint at most.
class Prefetch {
 public:
  /// `utilization`: the share of a GPU's memory that this process may use. `most_threads`: no more
  /// than so many read.
  Prefetch(c10::Device device, double utilization, int most_threads);

  /// Reads, with a few threads that inherit the caller's priority, and keeps what it read; what was
  /// kept before goes first, unless it is just that. The errors are those of Engine::load();
  /// kUnavailable where it does not fit beside what is there, and while another call reads.
  /// `resident`: bytes of the weights that are loaded; 0: none.
  Status read(const FileSystem& files, const checkpoint::Plan& plan, const std::string& config_dir,
              at::ScalarType dtype, std::uint64_t resident, const std::stop_token& stop);

  /// What is kept, if it is what a load by this plan would read now; then nothing is kept any more.
  /// What is being read still is not waited for.
  std::optional<weights::Shadow> take(const FileSystem& files, const checkpoint::Plan& plan,
                                      const weights::WeightLayout& layout, at::ScalarType dtype);

  /// Gives the memory back, also that of what is being read, which is waited for at most that long,
  /// and once, as its thread may hang; with `again` also where it was waited for in vain. Whether
  /// any came back.
  bool drop(std::chrono::milliseconds patience, bool again = false);

  /// Of the weights that are kept or being read.
  std::uint64_t bytes();

 private:
  /// `kept`: bytes of a GPU that are this process's already and that the arena will take.
  Status check_room(const weights::WeightLayout& layout, at::ScalarType dtype,
                    const checkpoint::Plan& plan, std::uint64_t resident, std::uint64_t kept) const;
  void set_bytes_of_reading(std::uint64_t bytes);

  const c10::Device device_;
  const double utilization_;
  const int threads_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable ended_;
  bool reading_ = false;
  std::uint64_t bytes_of_reading_ = 0;  ///< or of what is looked at, whether it may stay
  bool given_up_ = false;               // of what is being read: it was waited for in vain
  std::stop_source stop_;               // of what is being read
  std::optional<weights::Shadow> kept_;
};

}  // namespace evalcar::engine
