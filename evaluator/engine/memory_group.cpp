#include "evaluator/engine/memory_group.h"

#include <algorithm>
#include <fstream>
#include <string_view>
#include <vector>

namespace evalcar::engine {
namespace {

// How one version of control groups calls what is asked of it.
struct Version {
  std::string_view mount;
  std::vector<std::string_view> limits;  // the least counts; "max" is none
  std::string_view used;
  std::string_view cached;  // of memory.stat
};

const Version kSecond{
    "/sys/fs/cgroup", {"memory.max", "memory.high"}, "memory.current", "inactive_file"};
const Version kFirst{"/sys/fs/cgroup/memory",
                     {"memory.limit_in_bytes"},
                     "memory.usage_in_bytes",
                     "total_inactive_file"};

// Version 1 says so where there is no limit: the largest whole number of pages.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62U;

// Absent where the file is not there or holds a word.
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

std::uint64_t stat_value(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string name;
  for (std::uint64_t value = 0; file >> name >> value;) {
    if (name == key) return value;
  }
  return 0;
}

std::optional<GroupMemory> memory_of(const std::string& folder, const Version& version) {
  std::optional<std::uint64_t> limit;
  for (const std::string_view name : version.limits) {
    const auto value = number_in(folder + "/" + std::string(name));
    if (value.has_value() && *value < kNoLimit) limit = std::min(*value, limit.value_or(*value));
  }
  const auto used = number_in(folder + "/" + std::string(version.used));
  if (!limit.has_value() || !used.has_value()) return std::nullopt;
  const std::uint64_t cached = std::min(*used, stat_value(folder + "/memory.stat", version.cached));
  return GroupMemory{*limit - std::min(*limit, *used - cached), *limit};
}

// The group `path` and all above it.
void add_groups(const std::string& mount, std::string path, const Version& version,
                std::optional<GroupMemory>& least) {
  while (true) {
    const std::string folder = path == "/" ? mount : mount + path;
    if (const auto group = memory_of(folder, version)) {
      if (!least.has_value()) least = group;
      least->available = std::min(least->available, group->available);
      least->total = std::min(least->total, group->total);
    }
    if (path.empty() || path == "/") return;
    path.erase(path.rfind('/'));
    if (path.empty()) path = "/";
  }
}

// "memory" among the controllers "cpu,memory".
bool has_memory(std::string_view controllers) {
  return ("," + std::string(controllers) + ",").find(",memory,") != std::string::npos;
}

}  // namespace

// A line is "<hierarchy>:<controllers>:<path>"; version 2's has hierarchy 0 and no controllers.
std::optional<GroupMemory> group_memory(const std::string& root) {
  std::optional<GroupMemory> least;
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line.substr(second + 1).rfind('/', 0) != 0) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_second = controllers.empty() && line.compare(0, first, "0") == 0;
    if (!is_second && !has_memory(controllers)) continue;
    const Version& version = is_second ? kSecond : kFirst;
    add_groups(root + std::string(version.mount), line.substr(second + 1), version, least);
  }
  return least;
}

}  // namespace evalcar::engine
