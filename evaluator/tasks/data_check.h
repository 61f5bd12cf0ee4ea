// Whether the data of the tasks are there and can be read: asked before any weights are loaded, and
// by the agent (`evalcar-evaluator check`) to tell a person early, and to notice when they come
// back.
#pragma once

#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "evaluator/tasks/task.h"
#include "store/base/file_system.h"
#include "store/base/hash.h"
#include "store/protocol/messages.h"

namespace evalcar::tasks {

/// A task whose data are open, or why they are not.
struct OpenedData {
  std::unique_ptr<Task> task;
  Error error = {};
  std::string kind = {};   ///< of the error, as JobError's: protocol::kData, or the settings'
  std::int64_t shots = 0;  ///< examples before each question
};

/// Opens the data of a task: folder, files, columns and their types; where `settings.num_fewshot`
/// or the task itself wants examples, those of [fewshot], too.
OpenedData open_task_data(const FileSystem& files, const TaskFile& file,
                          const protocol::EvaluationSettings& settings);

/// A short text that changes with the data of a task (names, sizes, what identifies the content).
std::string circumstances_of(const Task& task);

/// Opens the data of each task of `settings` and reads its first document. Of each only `task`,
/// `error`, `error_kind` and `circumstances` are set.
std::vector<protocol::TaskResult> check_data(const FileSystem& files,
                                             const protocol::EvaluationSettings& settings);

/// check_data() for a process that is asked again and again. Not thread-safe.
class DataCheck {
 public:
  /// What was whole the last time is taken to be so while its files are the same
  /// (identify_data()): nothing of it is read again.
  std::vector<protocol::TaskResult> check(const FileSystem& files,
                                          const protocol::EvaluationSettings& settings);

 private:
  struct Whole {
    Sha256Digest data;
    std::string circumstances;
  };
  std::map<std::string, Whole> whole_;  // by task, of the last time
};

struct CheckCommandOptions {
  std::vector<std::string> tasks;
  std::string data_dir;
  std::string tasks_dir;  ///< the user's task files; may be empty
};

/// Prints {"tasks":[{"task","error","error_kind","circumstances"},…]} as one line. Returns the exit
/// code: 0 all data are there, 1 some are not.
int run_check(const CheckCommandOptions& options, const FileSystem& files, std::ostream& out);

}  // namespace evalcar::tasks
