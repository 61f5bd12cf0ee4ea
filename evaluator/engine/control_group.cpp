#include "evaluator/engine/control_group.h"

#include <algorithm>
#include <cmath>
#include <fstream>

namespace evalcar::engine {
namespace {

// `name` among the controllers "cpu,cpuacct".
bool has_controller(std::string_view controllers, std::string_view name) {
  for (std::size_t begin = 0; begin <= controllers.size();) {
    const std::size_t end = std::min(controllers.find(',', begin), controllers.size());
    if (controllers.substr(begin, end - begin) == name) return true;
    begin = end + 1;
  }
  return false;
}

// The group `path`, which begins with "/", and all above it.
void add_groups(const std::string& mount, std::string path, bool is_second,
                std::vector<ControlGroup>& groups) {
  while (true) {
    groups.push_back({path == "/" ? mount : mount + path, is_second});
    if (path == "/") return;
    path.erase(path.rfind('/'));
    if (path.empty()) path.assign(1, '/');
  }
}

// Absent where the files hold words, or a number that is not above 0: no quota.
std::optional<double> cores_of(const ControlGroup& group) {
  double quota = 0, period = 0;
  if (group.is_second) {
    std::ifstream file(group.folder + "/cpu.max");
    if (!(file >> quota >> period)) return std::nullopt;
  } else {
    std::ifstream of_quota(group.folder + "/cpu.cfs_quota_us");
    std::ifstream of_period(group.folder + "/cpu.cfs_period_us");
    if (!(of_quota >> quota) || !(of_period >> period)) return std::nullopt;
  }
  if (!(quota > 0) || !(period > 0)) return std::nullopt;
  return quota / period;
}

}  // namespace

// A line is "<hierarchy>:<controllers>:<path>"; version 2's has hierarchy 0 and no controllers.
std::vector<ControlGroup> control_groups(std::string_view controller, const std::string& root) {
  std::vector<ControlGroup> groups;
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line.substr(second + 1).rfind('/', 0) != 0) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_second = controllers.empty() && line.compare(0, first, "0") == 0;
    if (!is_second && !has_controller(controllers, controller)) continue;
    std::string mount = root + "/sys/fs/cgroup";
    if (!is_second) mount.append("/").append(controller);
    add_groups(mount, line.substr(second + 1), is_second, groups);
  }
  return groups;
}

std::optional<int> group_cores(const std::string& root) {
  constexpr double kMost = 1 << 20;
  std::optional<double> least;
  for (const ControlGroup& group : control_groups("cpu", root)) {
    const auto cores = cores_of(group);
    if (cores.has_value()) least = std::min(*cores, least.value_or(*cores));
  }
  if (!least.has_value()) return std::nullopt;
  return static_cast<int>(std::ceil(std::min(*least, kMost)));
}

}  // namespace evalcar::engine
