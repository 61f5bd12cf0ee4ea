// The declarative task file (TOML), read and checked. No data is touched here and nothing heavy is
// linked: the agent uses this for `evalcar tasks`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::tasks {

struct GenerationDefaults {
  std::optional<std::int64_t> max_new_tokens;  ///< absent: the model wrapper's default (128)
  std::vector<std::string> until;
  std::string default_until = "\n\n";  ///< logged where there is no `until`: what ends an example
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<std::int64_t> num_beams;  ///< 1, or absent: only logged
  bool do_sample = false;
};

struct TaskFile {
  std::string name;      ///< "docvqa_val"
  std::string version;   ///< lmms-eval's `versions` entry ("Yaml" for most)
  std::string data_set;  ///< "lmms-lab/DocVQA"
  std::string config;    ///< "DocVQA"; empty = default
  std::string split;     ///< "validation"
  GenerationDefaults generation;
  std::string scorer;                          ///< "anls", …
  std::map<std::string, std::string> aliases;  ///< metric alias -> metric name
  std::string source;                          ///< "built in", or the path of the user's file
  std::string content;  ///< the TOML text: the rest (columns, prompt, aggregation, groups) is read
                        ///< by task.cpp
};

/// All tasks: the built-in ones, and those of `tasks_dir` (may be empty). A user's file with a
/// built-in name is an error. Every problem is listed, each with file, line, seen, expected and
/// hint.
Result<std::vector<TaskFile>> list_tasks(const FileSystem& files, const std::string& tasks_dir);
/// One task by name; kNotFound names the nearest known one.
Result<TaskFile> find_task(const FileSystem& files, const std::string& tasks_dir,
                           std::string_view name);
/// What `evalcar tasks --check FILE` prints: an empty list means that the file is good.
Result<std::vector<std::string>> check_task_file(const FileSystem& files, const std::string& path);

}  // namespace evalcar::tasks
