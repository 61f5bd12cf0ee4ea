#include "agent/cli/named_file.h"

namespace evalcar::cli {

Status write_named_file(FileSystem& files, const std::string& path, std::string_view content) {
  const auto there = files.info_followed(path);
  if (there.has_value() && there->type == FileType::kRegular) {
    EVALCAR_ASSIGN_OR_RETURN(const std::string place, files.real_path(path));
    return write_file_atomically(files, place, content);
  }
  // Nothing is there: neither a file, nor a link that leads nowhere yet.
  if (!files.info(path).has_value()) return write_file_atomically(files, path, content);
  EVALCAR_ASSIGN_OR_RETURN(const auto file, files.open_appendable(path, 0666));
  EVALCAR_RETURN_IF_ERROR(file->append(content));
  return file->close();
}

}  // namespace evalcar::cli
