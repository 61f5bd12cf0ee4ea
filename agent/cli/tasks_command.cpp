#include <nlohmann/json.hpp>

#include "agent/cli/exit_code.h"
#include "agent/cli/small_commands.h"
#include "agent/publish/table.h"
#include "evaluator/tasks/task_file.h"

namespace evalcar::cli {
namespace {

/// "" for a data set that is no hub repository (a file of the user's own).
std::string fetch_command(const tasks::TaskFile& task) {
  const bool hub = task.data_set.find('/') != std::string::npos &&
                   !task.data_set.starts_with('/') && !task.data_set.starts_with('.');
  if (!hub) return "";
  return "hf download --repo-type dataset " + task.data_set + " --local-dir DIR/" + task.data_set;
}

int check_file(const TasksOptions& options, FileSystem& files, std::ostream& out,
               std::ostream& err) {
  const auto problems = tasks::check_task_file(files, options.check);
  if (!problems.has_value()) {
    err << "evalcar tasks: " << problems.error().message << '\n';
    return exit_code_of(problems.error());
  }
  if (options.json) {
    out << nlohmann::ordered_json{{"file", options.check}, {"problems", *problems}}.dump(2) << '\n';
  } else {
    for (const std::string& problem : *problems) out << problem << '\n';
    if (problems->empty()) out << options.check << ": good\n";
  }
  return problems->empty() ? kExitDone : kExitUsage;
}

}  // namespace

int run_tasks(const TasksOptions& options, FileSystem& files, std::ostream& out,
              std::ostream& err) {
  if (!options.check.empty()) return check_file(options, files, out, err);
  const auto list = tasks::list_tasks(files, options.tasks_dir);
  if (!list.has_value()) {
    err << "evalcar tasks: " << list.error().message << '\n';
    return kExitUsage;
  }
  if (options.json) {
    auto document = nlohmann::ordered_json::array();
    for (const tasks::TaskFile& task : *list) {
      document.push_back({{"name", task.name},
                          {"version", task.version},
                          {"data_set", task.data_set},
                          {"config", task.config},
                          {"split", task.split},
                          {"scorer", task.scorer},
                          {"aliases", task.aliases},
                          {"source", task.source},
                          {"fetch", fetch_command(task)}});
    }
    out << document.dump(2) << '\n';
    return kExitDone;
  }
  std::vector<std::vector<std::string>> rows;
  for (const tasks::TaskFile& task : *list) {
    rows.push_back({task.name, task.data_set, task.split, task.scorer, task.source});
  }
  out << publish::markdown_table({"Task", "Data set", "Split", "Scorer", "Source"}, rows,
                                 {false, false, false, false, false})
      << "\nThe data, below the folder DIR given as --data:\n";
  for (const tasks::TaskFile& task : *list) {
    const std::string command = fetch_command(task);
    if (!command.empty()) out << "  " << command << '\n';
  }
  return kExitDone;
}

}  // namespace evalcar::cli
