#include "agent/cli/database_choice.h"

#include "store/base/text.h"

namespace evalcar::cli {

Result<std::string> choose_database(const FileSystem& files, const DatabaseChoice& choice,
                                    const state::Environment& environment) {
  std::string path = !choice.db.empty() ? choice.db : choice.config_store;
  std::string output = choice.output_dir;
  if (path.empty() && output.empty() && choice.config_outputs.size() > 1) {
    std::string lines;
    for (const std::string& one : choice.config_outputs) lines += "  --output-dir " + one + "\n";
    return with_lines(make_error(ErrorCode::kInvalidArgument,
                                 "the configuration has several output directories; choose one:"),
                      lines);
  }
  if (output.empty() && !choice.config_outputs.empty()) output = choice.config_outputs.front();
  if (choice.db.empty() && !choice.output_dir.empty()) path.clear();  // asked for by its folder
  if (path.empty() && !output.empty()) {
    EVALCAR_ASSIGN_OR_RETURN(path, state::find_database(files, output, environment));
  }
  if (!path.empty()) {
    const auto info = files.info_followed(path);
    if (info.has_value() && info->type != FileType::kRegular) {  // a pipe would be waited for
      return make_error(ErrorCode::kInvalidArgument, path + ": not a regular file, so no database");
    }
    if (info.has_value()) return path;
    if (info.error().code != ErrorCode::kNotFound) return info.error();
    return make_error(ErrorCode::kNotFound,
                      path + ": no such database; `evalcar run` makes it when it starts");
  }
  EVALCAR_ASSIGN_OR_RETURN(const auto found, state::list_databases(files, environment));
  const std::string folder = state::state_directory(environment);
  if (found.empty()) {
    return make_error(ErrorCode::kNotFound, "no database in " + folder +
                                                "; name one with --db, --output-dir or --config");
  }
  if (found.size() == 1) return found.front();
  std::string lines;
  for (const std::string& one : found) lines += "  --db " + one + "\n";
  return with_lines(make_error(ErrorCode::kInvalidArgument,
                               "several databases in " + folder + "; choose one with --db:"),
                    lines);
}

}  // namespace evalcar::cli
