#include "evaluator/engine/memory_group.h"

#include <algorithm>
#include <fstream>
#include <string_view>
#include <vector>

#include "evaluator/engine/control_group.h"

namespace evalcar::engine {
namespace {

// How one version of control groups calls what is asked of it.
struct Version {
  std::vector<std::string_view> limits;  // the least counts; "max" is none
  std::string_view used;
  std::string_view cached;  // of memory.stat
};

const Version kSecond{{"memory.max", "memory.high"}, "memory.current", "inactive_file"};
const Version kFirst{{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file"};

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

}  // namespace

std::optional<GroupMemory> group_memory(const std::string& root) {
  std::optional<GroupMemory> least;
  for (const ControlGroup& group : control_groups("memory", root)) {
    const auto memory = memory_of(group.folder, group.is_second ? kSecond : kFirst);
    if (!memory.has_value()) continue;
    if (!least.has_value()) least = memory;
    least->available = std::min(least->available, memory->available);
    least->total = std::min(least->total, memory->total);
  }
  return least;
}

}  // namespace evalcar::engine
