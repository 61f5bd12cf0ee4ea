#include "evaluator/tasks/data_identity.h"

#include <cstdint>
#include <vector>

#include "evaluator/tasks/data_location.h"
#include "evaluator/tasks/definition.h"
#include "evaluator/tasks/file_identity.h"
#include "evaluator/tasks/shots.h"

namespace evalcar::tasks {
namespace {

/// Each part with its length before it, so that no two lists of parts give the same bytes.
void add_to(Sha256& hash, std::string_view part) {
  hash.update(std::to_string(part.size()) + ":");
  hash.update(part);
}

Status add_files(const FileSystem& files, const std::vector<std::string>& paths, Sha256& hash) {
  add_to(hash, std::to_string(paths.size()) + " files");
  for (const std::string& path : paths) {
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, files.info_now(path));
    const FileIdentity identity = identity_of(info);
    add_to(hash, path);
    for (const std::uint64_t number : {identity.device, identity.inode, identity.size_bytes,
                                       static_cast<std::uint64_t>(identity.mtime_ns),
                                       static_cast<std::uint64_t>(identity.ctime_ns)})
      add_to(hash, std::to_string(number));
  }
  return {};
}

Result<Sha256Digest> identify(const FileSystem& files, const TaskFile& task_file,
                              const protocol::EvaluationSettings& settings) {
  EVALCAR_ASSIGN_OR_RETURN(const Definition definition, definition_of(task_file));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t shots, shots_of(definition, settings.num_fewshot));
  Sha256 hash;
  for (const std::string& part :
       {task_file.name, task_file.version, task_file.content, std::to_string(shots)})
    add_to(hash, part);
  EVALCAR_ASSIGN_OR_RETURN(const auto data, find_data_files(files, definition, settings.data_dir));
  EVALCAR_RETURN_IF_ERROR(add_files(files, data, hash));
  if (shots > 0) {
    EVALCAR_ASSIGN_OR_RETURN(const auto examples,
                             find_example_files(files, definition, settings.data_dir));
    EVALCAR_RETURN_IF_ERROR(add_files(files, examples, hash));
  }
  return hash.finish();
}

}  // namespace

std::optional<Sha256Digest> identify_data(const FileSystem& files, const TaskFile& task_file,
                                          const protocol::EvaluationSettings& settings) {
  const auto found = identify(files, task_file, settings);
  return found.has_value() ? std::optional(*found) : std::nullopt;
}

}  // namespace evalcar::tasks
