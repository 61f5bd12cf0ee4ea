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
  std::optional<std::int64_t> top_k;
  std::optional<std::int64_t> num_beams;  ///< 1, or absent: only logged
  bool do_sample = false;
};

/// What is asked of the model for each document.
enum class RequestKind {
  kGenerate,        ///< an answer
  kMultipleChoice,  ///< which of several continuations is the likeliest
  kLoglikelihood,   ///< how likely one continuation is
  kLoss,            ///< how likely the answers of a whole conversation are
  kRolling,         ///< how likely a whole text is
};

struct RequestDefinition {
  RequestKind kind = RequestKind::kGenerate;
  std::string choices_column;        ///< of multiple_choice; else `choices`
  std::vector<std::string> choices;  ///< templates, as a prompt's text
  std::string answer;     ///< how the target names its choice: "index" | "letter" | "text" | ""
  bool plain = false;     ///< the context is the prompt's text itself, without a chat template
  std::string delimiter;  ///< between context and continuation
  std::string messages_column;             ///< of loss
  bool last_answer_only = false;           ///< of loss: not all that the assistant says
  std::optional<std::int64_t> max_length;  ///< tokens; of loss and rolling
};

struct TaskFile {
  std::string name;      ///< "docvqa_val"
  std::string version;   ///< lmms-eval's `versions` entry ("Yaml" for most)
  std::string data_set;  ///< "lmms-lab/DocVQA"
  std::string config;    ///< "DocVQA"; empty = default
  std::string split;     ///< "validation"
  GenerationDefaults generation;
  std::int64_t shots = 0;  ///< examples before each question, where nobody says how many
  RequestDefinition request;
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
