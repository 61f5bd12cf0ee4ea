#include "agent/run/misplaced_home.h"

#include <spdlog/spdlog.h>

#include "store/checkpoint/output_place.h"

namespace evalcar::run {

bool MisplacedHome::look(const std::function<bool()>& silent) {
  const MonotonicTime now = clock_.monotonic_now();
  if (home_.beside() || found_ || now < next_look_) return found_;
  next_look_ = now + settings_.poll_interval;
  if (!checkpoint::is_kept_by_accelerate(files_, output_dir_, settings_.pattern) || silent()) {
    return false;
  }
  why_ = home_.path +
         ": accelerate began to keep its checkpoints beside it, and fails on every other entry; it "
         "is moved out of the way";
  spdlog::error("{}", why_);
  found_ = true;
  return true;
}

}  // namespace evalcar::run
