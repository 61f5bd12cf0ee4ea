// A training that begins to save with accelerate's own names where our folder lies: it fails on
// every entry that is no checkpoint of its own.
#pragma once

#include <functional>
#include <string>

#include "agent/config/settings.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/checkpoint/home_place.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class MisplacedHome {
 public:
  MisplacedHome(const FileSystem& files, const Clock& clock, const config::WatchSettings& settings,
                const std::string& output_dir, const checkpoint::HomePlace& home)
      : files_(files), clock_(clock), settings_(settings), output_dir_(output_dir), home_(home) {}

  /// Why it lies there since the start; "": it does not.
  void tell(std::string why) { why_ = std::move(why); }
  /// Looks, once in a poll interval, and says so where it is. True: only a new start can move it.
  /// `silent`: asked behind the look, whether the file system had not answered.
  bool look(const std::function<bool()>& silent);
  /// What look() said.
  bool found() const { return found_; }
  const std::string& why() const { return why_; }

 private:
  const FileSystem& files_;
  const Clock& clock_;
  const config::WatchSettings& settings_;
  const std::string& output_dir_;
  const checkpoint::HomePlace& home_;
  std::string why_;
  MonotonicTime next_look_{};
  bool found_ = false;
};

}  // namespace evalcar::run
