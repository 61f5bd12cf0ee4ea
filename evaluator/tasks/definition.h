// Everything that a task file says, read from its TOML and checked. The format is described in
// DESIGN.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "evaluator/tasks/task_file.h"

namespace evalcar::tasks {

/// A setting of a prompt variant or a metric, as written.
using Setting = std::variant<bool, std::int64_t, double, std::string>;
/// In file order.
using Settings = std::vector<std::pair<std::string, Setting>>;

struct PromptDefinition {
  std::string text;     ///< template; see prompt.h
  std::string builder;  ///< name of a prompt made by code ("mme", "mmmu"); then there is no text
  /// Model family -> its settings. A family that is named here uses its own settings alone, any
  /// other "default".
  std::vector<std::pair<std::string, Settings>> variants;
};

/// Where examples before the question come from, and how they are written.
struct FewShotDefinition {
  std::optional<std::int64_t> num;  ///< where evaluate.num_fewshot says nothing; 0: never any
  std::string split;                ///< of the set of [data]; or
  std::vector<std::string> files;   ///< paths relative to the task file
  std::string sampler = "default";  ///< "default": drawn for each document | "first_n"
  std::string delimiter = "\n\n";   ///< after each example
  /// Between an example's text and its answer; by default as before a choice that stands behind a
  /// plain prompt.
  std::string target_delimiter = " ";
};

struct MetricDefinition {
  std::string name;
  std::string aggregation;  ///< "mean" | "mme" | "mmmu" | "none", or one of metrics_of()
  bool higher_is_better = true;
  Settings extra;  ///< repeated in the result's configs; what counts of it is in ScorerDefinition
};

struct ScorerDefinition {
  std::string
      name;  ///< "anls" | "vqa" | "mme" | "mmmu" | "exact_match" | "contains", or kind_name()
  std::string answers;  ///< of vqa: the column with the reference answers
  std::string id;  ///< of vqa: the column that names the question in its submission; may be empty
  bool ignore_case = false;
  bool ignore_punctuation = false;
  bool ignore_numbers = false;
};

struct Definition {
  TaskFile file;
  std::vector<std::string> groups;
  std::vector<std::string>
      data_files;  ///< [data] files: paths relative to the task file; instead of a set
  std::vector<std::string> image_columns;
  std::string target_column;
  std::optional<std::string> target_text;  ///< instead of a column
  std::string cluster_column;              ///< of the clustered standard error; may be empty
  PromptDefinition prompt;
  std::optional<FewShotDefinition> fewshot;
  ScorerDefinition scorer;
  std::vector<MetricDefinition> metrics;
};

/// What is wrong with a task file: one sentence each, "FILE:LINE: …".
using Problems = std::vector<std::string>;

/// Reads a task file's text. Problems are added to `problems`; the definition is to be used only if
/// none were.
Definition parse_definition(std::string_view content, const std::string& source,
                            Problems& problems);

/// Of a task file that was listed, so without problems; kInvalidArgument lists them if it has any.
Result<Definition> definition_of(const TaskFile& file);

/// The nearest of `known` within two edits or a third of the word; empty if none is near.
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

}  // namespace evalcar::tasks
