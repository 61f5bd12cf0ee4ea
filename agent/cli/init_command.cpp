#include "agent/cli/exit_code.h"
#include "agent/cli/small_commands.h"

namespace evalcar::cli {

int run_init(const std::string& path, const std::vector<config::Override>& overrides,
             FileSystem& files, std::ostream& out, std::ostream& err) {
  const auto config = config::load(files, "", overrides);
  if (!config.has_value()) {
    err << "evalcar init: " << config.error().message << '\n';
    return kExitUsage;
  }
  const std::string content = config::commented_file(*config);
  if (path == "-") {
    out << content;
    return kExitDone;
  }
  if (files.info(path).has_value()) {
    err << "evalcar init: " << path << ": exists already, and is left as it is\n";
    return kExitUsage;
  }
  if (const Status written = write_file_atomically(files, path, content); !written.has_value()) {
    err << "evalcar init: " << written.error().message << '\n';
    return kExitFailed;
  }
  out << "written: " << path << "\nnext: evalcar run --config " << path << '\n';
  return kExitDone;
}

}  // namespace evalcar::cli
