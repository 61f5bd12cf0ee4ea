#include "agent/run/complaints.h"

#include <spdlog/spdlog.h>

#include <chrono>

namespace evalcar::run {

void Complaints::take(const std::string& where, const Status& status) {
  if (status.has_value()) return;
  const std::string text = where + ": " + status.error().message;
  const MonotonicTime now = clock_.monotonic_now();
  if (text == last_ && now - said_at_ < std::chrono::seconds(60)) return;
  last_ = text;
  said_at_ = now;
  spdlog::error("{}", text);
}

}  // namespace evalcar::run
