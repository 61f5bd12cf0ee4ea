#include "store/base/clock.h"

#include <array>
#include <cstdio>
#include <ctime>

namespace evalcar {

WallTime SystemClock::wall_now() const {
  return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
}

MonotonicTime SystemClock::monotonic_now() const { return std::chrono::steady_clock::now(); }

std::chrono::nanoseconds SystemClock::thread_time() const {
  std::timespec used{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);  // fails for no thread of ours
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

std::string format_utc(WallTime time) {
  const auto micros = time.time_since_epoch();
  const auto whole = std::chrono::floor<std::chrono::seconds>(micros);
  const std::time_t seconds = whole.count();
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ",
                parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min,
                parts.tm_sec, static_cast<int>((micros - whole).count()));
  return text.data();
}

}  // namespace evalcar
