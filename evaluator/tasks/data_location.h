// Where the files of a data set lie under the data folder (design, "Data").
#pragma once

#include <string>
#include <vector>

#include "evaluator/tasks/definition.h"
#include "store/base/file_system.h"

namespace evalcar::tasks {

/// The split's files in order: paths. kNotFound says what was looked for and prints the command
/// that fetches the data set; kCorruption names a shard that is missing. `table`: of the task file
/// that names files beside it, for messages.
Result<std::vector<std::string>> find_data_files(const FileSystem& files,
                                                 const Definition& definition,
                                                 const std::string& data_dir,
                                                 const std::string& table = "[data]");

/// Those of the examples before the question, of a task that has [fewshot].
Result<std::vector<std::string>> find_example_files(const FileSystem& files,
                                                    const Definition& definition,
                                                    const std::string& data_dir);

/// The command that fetches a data set into the data folder.
std::string download_command(const std::string& data_set, const std::string& data_dir);

/// Shell-like match of a relative path: * and ? and [] within a component, ** over components.
bool matches_pattern(std::string_view pattern, std::string_view path);

}  // namespace evalcar::tasks
