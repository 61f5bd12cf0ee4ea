#include <string>
#include <vector>

#include "agent/cli/complete_settings.h"
#include "agent/cli/exit_code.h"
#include "agent/cli/small_commands.h"
#include "agent/cli/systemd_drop_in.h"

namespace evalcar::cli {
namespace {

int write_configuration(const InitOptions& options, FileSystem& files, std::ostream& out,
                        std::ostream& err) {
  const auto config = config::load(files, "", options.overrides);
  if (!config.has_value()) {
    err << "evalcar init: " << config.error().message << '\n';
    return kExitUsage;
  }
  const std::string content = config::commented_file(*config);
  if (options.path == "-") {
    out << content;
    return kExitDone;
  }
  if (files.info(options.path).has_value()) {
    err << "evalcar init: " << options.path << ": exists already, and is left as it is\n";
    return kExitUsage;
  }
  if (const Status written = write_file_atomically(files, options.path, content);
      !written.has_value()) {
    err << "evalcar init: " << written.error().message << '\n';
    return kExitFailed;
  }
  out << "written: " << options.path << "\nnext: evalcar run --config " << options.path << '\n';
  return kExitDone;
}

Result<DropIn> drop_in_of(const InitOptions& options, const FileSystem& files, std::ostream& err) {
  if (options.config_file.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--systemd needs the unit's configuration: --config /etc/evalcar/NAME.toml");
  }
  EVALCAR_ASSIGN_OR_RETURN(auto config,
                           config::load(files, options.config_file, options.overrides));
  for (const std::string& warning : config.warnings) err << "evalcar init: " << warning << '\n';
  const config::Settings& s = config.settings;
  std::vector<std::string> paths = s.watch.output_dir;
  paths.insert(paths.end(), {s.publish.dir, s.store.path, s.server.unix_socket});
  for (const std::string& path : paths) {
    if (path.empty() || path.starts_with('/')) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      path + ": not an absolute path; the service begins in another folder");
  }
  make_paths_absolute(config.settings);
  return make_drop_in(files, config.settings, options.config_file);
}

int write_drop_in(const InitOptions& options, FileSystem& files, std::ostream& out,
                  std::ostream& err) {
  const auto drop_in = drop_in_of(options, files, err);
  if (!drop_in.has_value()) {
    err << "evalcar init: " << drop_in.error().message << '\n';
    return kExitUsage;
  }
  if (options.drop_in_folder.empty()) {
    out << drop_in->content;
    return kExitDone;
  }
  const std::string folder =
      join_path(options.drop_in_folder, "evalcar@" + drop_in->instance + ".service.d");
  const std::string path = join_path(folder, "10-evalcar.conf");
  Status written = make_directories(files, folder);
  if (written.has_value()) written = write_file_atomically(files, path, drop_in->content);
  if (!written.has_value()) {
    err << "evalcar init: " << written.error().message << '\n';
    return kExitFailed;
  }
  out << "written: " << path << "\nnext: systemctl daemon-reload && systemctl enable --now evalcar@"
      << drop_in->instance << '\n';
  return kExitDone;
}

}  // namespace

int run_init(const InitOptions& options, FileSystem& files, std::ostream& out, std::ostream& err) {
  return options.systemd ? write_drop_in(options, files, out, err)
                         : write_configuration(options, files, out, err);
}

}  // namespace evalcar::cli
