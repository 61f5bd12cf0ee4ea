// `evalcar push`: results that came when the trainer had gone are sent to its loggers. Those are
// Python's, so this becomes the trainer file's own command, in the Python that the user names.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "agent/cli/exit_code.h"
#include "agent/cli/small_commands.h"
#include "store/state/store.h"

namespace evalcar::cli {
namespace {

/// Where the file lies: below an installation's prefix, or in the tree of a build.
Result<std::string> find_trainer_file(const FileSystem& files) {
  constexpr const char* kPlaces[] = {"../share/evalcar/trainer", "../../agent/trainer",
                                     "../../../agent/trainer"};
  EVALCAR_ASSIGN_OR_RETURN(const std::string self, files.real_path("/proc/self/exe"));
  for (const char* const place : kPlaces) {
    std::string path = join_path(join_path(parent_path(self), place), "evalcar_trainer.py");
    if (files.info_followed(path).has_value()) return path;
  }
  return make_error(ErrorCode::kNotFound,
                    "evalcar_trainer.py was not found beside this program (share/evalcar/trainer)");
}

/// That of the newest run of a database.
Result<std::string> output_dir_of(const FileSystem& files, const DatabaseChoice& choice) {
  if (!choice.output_dir.empty()) return choice.output_dir;
  EVALCAR_ASSIGN_OR_RETURN(const std::string path, choose_database(files, choice));
  EVALCAR_ASSIGN_OR_RETURN(const state::Reader reader, state::Reader::open(path));
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  if (runs.empty()) return make_error(ErrorCode::kNotFound, path + ": holds no run yet");
  return runs.back().output_dir;
}

}  // namespace

int run_push(const DatabaseChoice& database, const std::vector<std::string>& arguments,
             FileSystem& files, std::ostream& err) {
  const auto complain = [&err](const Error& error) {
    err << "evalcar push: " << error.message << '\n';
    return exit_code_of(error);
  };
  const auto file = find_trainer_file(files);
  if (!file.has_value()) return complain(file.error());
  const auto output_dir = output_dir_of(files, database);
  if (!output_dir.has_value()) return complain(output_dir.error());
  const char* const given = std::getenv("EVALCAR_PYTHON");
  const std::string python = given != nullptr && *given != 0 ? given : "python3";
  // "=": a folder's name may begin like an option.
  std::vector<std::string> command = {python, *file, "push", "--output-dir=" + *output_dir};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execvp(python.c_str(), argv.data());
  err << "evalcar push: " << errno_error("start", python, errno).message
      << " (EVALCAR_PYTHON names the Python that has the loggers)\n";
  return kExitFailed;
}

}  // namespace evalcar::cli
