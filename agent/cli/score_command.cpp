#include <unistd.h>

#include <cerrno>

#include "agent/cli/exit_code.h"
#include "agent/cli/small_commands.h"
#include "agent/supervise/find_evaluator.h"

namespace evalcar::cli {

int run_score(const std::vector<std::string>& arguments, FileSystem& files, std::ostream& err) {
  const auto program = supervise::find_evaluator(files);
  if (!program.has_value()) {
    err << "evalcar score: " << program.error().message << '\n';
    return kExitUsage;
  }
  std::vector<std::string> command = {*program, "score"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv(program->c_str(), argv.data());
  err << "evalcar score: " << errno_error("start", *program, errno).message << '\n';
  return kExitFailed;
}

}  // namespace evalcar::cli
