#include "tests/gpu/device_profile.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

namespace evalcar::testing {

DeviceProfile profile_device(const std::function<void()>& work) {
  namespace profiler = torch::autograd::profiler;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  const std::set<torch::profiler::impl::ActivityType> activities{
      torch::profiler::impl::ActivityType::CUDA};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  work();
  const std::unique_ptr<profiler::ProfilerResult> result = profiler::disableProfiler();

  DeviceProfile profile;
  std::map<std::string, DeviceTime> by_name;
  std::uint64_t first = UINT64_MAX, last = 0;
  for (const profiler::KinetoEvent& event : result->events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;
    const double seconds = static_cast<double>(event.durationNs()) * 1e-9;
    DeviceTime& time = by_name[event.name()];
    ++time.count;
    time.seconds += seconds;
    profile.busy += seconds;
    first = std::min(first, event.startNs());
    last = std::max(last, event.startNs() + event.durationNs());
  }
  if (by_name.empty()) return profile;
  profile.span = static_cast<double>(last - first) * 1e-9;
  for (auto& [name, time] : by_name) {
    time.name = name;
    profile.times.push_back(std::move(time));
  }
  std::ranges::sort(profile.times, std::ranges::greater{}, &DeviceTime::seconds);
  return profile;
}

}  // namespace evalcar::testing
