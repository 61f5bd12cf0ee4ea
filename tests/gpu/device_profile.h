// What a GPU did while something ran, by libtorch's own profiler.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace evalcar::testing {

/// A kernel, or a kind of copy.
struct DeviceTime {
  std::string name;
  std::int64_t count = 0;
  double seconds = 0;  ///< of all of them
};

struct DeviceProfile {
  std::vector<DeviceTime> times;  ///< the longest first
  double busy = 0;                ///< seconds: the sum of all
  double span = 0;                ///< seconds from the first one's start to the last one's end
};

/// Of all that `work` has enqueued and waited for. Empty without a GPU. May throw c10::Error.
DeviceProfile profile_device(const std::function<void()>& work);

}  // namespace evalcar::testing
