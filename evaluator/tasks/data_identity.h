// What a task is, told without reading its data.
#pragma once

#include <optional>
#include <string>

#include "evaluator/tasks/task_file.h"
#include "store/base/file_system.h"
#include "store/base/hash.h"
#include "store/protocol/messages.h"

namespace evalcar::tasks {

/// A hash of the task file's content, of how many examples stand before a question, and of the
/// names and identities (file_identity.h) of the data files that are found for it now. It costs a
/// look at folders and at each file's inode. Pictures that documents name are not in it. Absent
/// where the task or its data are not found: whoever opens them says why.
std::optional<Sha256Digest> identify_data(const FileSystem& files, const TaskFile& task_file,
                                          const protocol::EvaluationSettings& settings);

}  // namespace evalcar::tasks
