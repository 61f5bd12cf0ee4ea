#include "agent/supervise/line_quota.h"

#include <utility>

namespace evalcar::supervise {

bool LineQuota::take(MonotonicTime now, std::int64_t& left_out) {
  left_out = 0;
  if (taken_ == 0 || now - since_ >= kPeriod) {
    since_ = now;
    taken_ = 0;
    left_out = std::exchange(refused_, 0);
  }
  if (taken_ >= kLines) {
    ++refused_;
    return false;
  }
  ++taken_;
  return true;
}

}  // namespace evalcar::supervise
