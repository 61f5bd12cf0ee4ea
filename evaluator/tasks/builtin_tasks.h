// The task files of evaluator/tasks/builtin, embedded in the program at build time (embed.cmake).
#pragma once

#include <span>
#include <string_view>

namespace evalcar::tasks {

struct BuiltinTask {
  std::string_view name;
  std::string_view content;
};

std::span<const BuiltinTask> builtin_tasks();

}  // namespace evalcar::tasks
