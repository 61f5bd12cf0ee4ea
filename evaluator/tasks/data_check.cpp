#include "evaluator/tasks/data_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "store/base/hash.h"

namespace evalcar::tasks {

OpenedData open_task_data(const FileSystem& files, const std::string& name,
                          const std::string& tasks_dir, const std::string& data_dir) {
  auto file = find_task(files, tasks_dir, name);
  if (!file.has_value()) {  // the agent knew it: its file went, or was changed
    return {nullptr, std::move(file).error(),
            std::string(error_code_name(ErrorCode::kInvalidArgument))};
  }
  auto task = Task::open(files, *file, data_dir);
  if (task.has_value()) return {std::move(task).value()};
  // Data that do not fit their task are broken data, not a wrong command line.
  Error error = std::move(task).error();
  if (error.code == ErrorCode::kInvalidArgument) error.code = ErrorCode::kCorruption;
  return {nullptr, std::move(error), std::string(protocol::kData)};
}

std::string circumstances_of(const Task& task) {
  return sha256_hex(task.data_fingerprint()).substr(0, 16);
}

std::vector<protocol::TaskResult> check_data(const FileSystem& files,
                                             const protocol::EvaluationSettings& settings) {
  std::vector<protocol::TaskResult> report;
  for (const std::string& name : settings.tasks) {
    protocol::TaskResult& found = report.emplace_back();
    found.task = name;
    const OpenedData data = open_task_data(files, name, settings.tasks_dir, settings.data_dir);
    if (data.task == nullptr) {
      found.error = data.error.message;
      found.error_kind = data.kind;
      continue;
    }
    found.circumstances = circumstances_of(*data.task);
    if (const auto document = data.task->document_json(0); !document.has_value()) {
      found.error = name + ": document 0: " + document.error().message;
      found.error_kind = protocol::kData;
    }
  }
  return report;
}

int run_check(const CheckCommandOptions& options, const FileSystem& files, std::ostream& out) {
  protocol::EvaluationSettings settings;
  settings.tasks = options.tasks;
  settings.data_dir = options.data_dir;
  settings.tasks_dir = options.tasks_dir;
  const auto report = check_data(files, settings);
  auto list = nlohmann::json::array();
  for (const protocol::TaskResult& task : report) {
    list.push_back({{"task", task.task},
                    {"error", task.error},
                    {"error_kind", task.error_kind},
                    {"circumstances", task.circumstances}});
  }
  out << nlohmann::json{{"tasks", list}}.dump(-1, ' ', false,
                                              nlohmann::json::error_handler_t::replace)
      << std::endl;
  const bool whole = std::all_of(report.begin(), report.end(),
                                 [](const auto& task) { return task.error.empty(); });
  return whole ? 0 : 1;
}

}  // namespace evalcar::tasks
