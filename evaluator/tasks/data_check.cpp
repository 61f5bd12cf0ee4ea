#include "evaluator/tasks/data_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "evaluator/tasks/data_identity.h"
#include "evaluator/tasks/shots.h"
#include "store/base/hash.h"

namespace evalcar::tasks {
namespace {

OpenedData of_settings(Error error) {
  return {nullptr, std::move(error), std::string(error_code_name(ErrorCode::kInvalidArgument))};
}

OpenedData find_and_open(const FileSystem& files, const std::string& name,
                         const protocol::EvaluationSettings& settings) {
  auto file = find_task(files, settings.tasks_dir, name);
  // The agent knew it: its file went, or was changed.
  if (!file.has_value()) return of_settings(std::move(file).error());
  return open_task_data(files, *file, settings);
}

protocol::TaskResult check_task(const FileSystem& files, const std::string& name,
                                const protocol::EvaluationSettings& settings) {
  protocol::TaskResult found;
  found.task = name;
  const OpenedData data = find_and_open(files, name, settings);
  if (data.task == nullptr) {
    found.error = data.error.message;
    found.error_kind = data.kind;
    return found;
  }
  found.circumstances = circumstances_of(*data.task);
  if (const auto document = data.task->document_json(0); !document.has_value()) {
    found.error = name + ": document 0: " + document.error().message;
    found.error_kind = protocol::kData;
  }
  return found;
}

}  // namespace

OpenedData open_task_data(const FileSystem& files, const TaskFile& file,
                          const protocol::EvaluationSettings& settings) {
  const auto definition = definition_of(file);
  if (!definition.has_value()) return of_settings(definition.error());
  const auto shots = shots_of(*definition, settings.num_fewshot);
  if (!shots.has_value()) return of_settings(shots.error());
  auto task = Task::open(files, file, settings.data_dir, *shots);
  if (task.has_value()) return {.task = std::move(task).value(), .shots = *shots};
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
  for (const std::string& name : settings.tasks)
    report.push_back(check_task(files, name, settings));
  return report;
}

std::vector<protocol::TaskResult> DataCheck::check(const FileSystem& files,
                                                   const protocol::EvaluationSettings& settings) {
  std::vector<protocol::TaskResult> report;
  std::map<std::string, Whole> whole;
  for (const std::string& name : settings.tasks) {
    const auto file = find_task(files, settings.tasks_dir, name);
    const auto data = file.has_value() ? identify_data(files, *file, settings) : std::nullopt;
    const auto before = whole_.find(name);
    if (data.has_value() && before != whole_.end() && before->second.data == *data) {
      protocol::TaskResult& found = report.emplace_back();
      found.task = name;
      found.circumstances = before->second.circumstances;
    } else {
      report.push_back(check_task(files, name, settings));
    }
    if (data.has_value() && report.back().error.empty())
      whole[name] = {.data = *data, .circumstances = report.back().circumstances};
  }
  whole_ = std::move(whole);
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
