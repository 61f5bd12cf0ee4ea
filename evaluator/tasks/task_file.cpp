#include "evaluator/tasks/task_file.h"

#include <algorithm>

#include "evaluator/tasks/builtin_tasks.h"
#include "evaluator/tasks/definition.h"
#include "store/base/text.h"

namespace evalcar::tasks {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20U;
constexpr std::size_t kMostFiles = 10'000;

bool ends_with_toml(std::string_view name) {
  return name.ends_with(".toml") && !name.starts_with(".");
}

void read_user_files(const FileSystem& files, const std::string& tasks_dir,
                     std::vector<TaskFile>& tasks, Problems& problems) {
  const auto entries = files.list(tasks_dir, kMostFiles);
  if (!entries) {
    problems.push_back("tasks_dir " + tasks_dir + ": " + entries.error().message);
    return;
  }
  for (const DirectoryEntry& entry : *entries) {
    if (!ends_with_toml(entry.name)) continue;
    const std::string path = join_path(tasks_dir, entry.name);
    const auto content = read_file(files, path, kMostBytes);
    if (!content) {
      problems.push_back(path + ": " + content.error().message);
      continue;
    }
    const std::size_t before = problems.size();
    Definition definition = parse_definition(*content, path, problems);
    if (problems.size() != before) continue;
    const auto same = std::find_if(tasks.begin(), tasks.end(), [&](const TaskFile& t) {
      return t.name == definition.file.name;
    });
    if (same != tasks.end()) {
      problems.push_back(path + ":1: the task name \"" + definition.file.name + "\" is taken by " +
                         (same->source == "built in" ? "a built-in task" : same->source) +
                         ": choose another");
      continue;
    }
    tasks.push_back(std::move(definition.file));
  }
}

}  // namespace

Result<std::vector<TaskFile>> list_tasks(const FileSystem& files, const std::string& tasks_dir) {
  std::vector<TaskFile> tasks;
  Problems problems;
  for (const BuiltinTask& builtin : builtin_tasks()) {
    tasks.push_back(parse_definition(builtin.content, "built in", problems).file);
  }
  if (!tasks_dir.empty()) read_user_files(files, tasks_dir, tasks, problems);
  if (!problems.empty()) {
    std::string lines;
    for (const std::string& problem : problems) lines += "  " + problem + "\n";
    return with_lines(make_error(ErrorCode::kInvalidArgument,
                                 std::to_string(problems.size()) + " problem(s) in task files:"),
                      lines);
  }
  std::sort(tasks.begin(), tasks.end(),
            [](const TaskFile& a, const TaskFile& b) { return a.name < b.name; });
  return tasks;
}

Result<TaskFile> find_task(const FileSystem& files, const std::string& tasks_dir,
                           std::string_view name) {
  EVALCAR_ASSIGN_OR_RETURN(std::vector<TaskFile> tasks, list_tasks(files, tasks_dir));
  std::vector<std::string> names;
  for (TaskFile& task : tasks) {
    if (task.name == name) return std::move(task);
    names.push_back(task.name);
  }
  const std::string near = nearest_word(name, names);
  std::string known;
  for (const std::string& n : names) known += (known.empty() ? "" : ", ") + n;
  return make_error(ErrorCode::kNotFound,
                    "no task is called \"" + std::string(name) + "\"" +
                        (near.empty() ? "." : "; did you mean \"" + near + "\"?") + " Known are " +
                        known + (tasks_dir.empty() ? " (own tasks: set evaluate.tasks_dir)" : ""));
}

Result<std::vector<std::string>> check_task_file(const FileSystem& files, const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string content, read_file(files, path, kMostBytes));
  Problems problems;
  const Definition definition = parse_definition(content, path, problems);
  for (const BuiltinTask& builtin : builtin_tasks()) {
    if (builtin.name == definition.file.name) {
      problems.push_back(path + ":1: the task name \"" + definition.file.name +
                         "\" is taken by a built-in task: choose another");
    }
  }
  return problems;
}

}  // namespace evalcar::tasks
