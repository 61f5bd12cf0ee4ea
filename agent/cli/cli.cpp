#include "agent/cli/cli.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "agent/cli/command_options.h"
#include "agent/cli/exit_code.h"
#include "agent/cli/log.h"
#include "agent/cli/out_of_memory.h"
#include "agent/config/units.h"
#include "agent/service/standard_descriptors.h"
#include "store/base/open_files.h"

namespace evalcar::cli {
namespace {

/// Complains if there is no such command; CLI11 would only say that one is missing.
bool knows_command(CLI::App& app, const std::string& name) {
  std::string known;
  for (const CLI::App* const command : app.get_subcommands([](CLI::App*) { return true; })) {
    if (command->get_name() == name) return true;
    known += " " + command->get_name();
  }
  std::cerr << "evalcar: no command is called \"" << name << "\"; there are" << known << '\n';
  return false;
}

void add_log_flags(CLI::App& app, LogOptions& log) {
  app.add_option("--log-level", log.level, "trace, debug, info, warning, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}));
  app.add_option("--log-file", log.file, "Write the log there instead of to standard error");
  app.add_option_function<std::string>(
      "--log-max-size",
      [&log](const std::string& size) {
        const auto bytes = config::parse_bytes(size);
        if (!bytes.has_value()) throw CLI::ValidationError("--log-max-size", bytes.error().message);
        log.max_bytes = *bytes;
      },
      "Begin a new log file after so much (32MiB; 0: never); the last three are kept");
}

/// Fills `action`, or gives the exit code of --help, --version or a mistake.
std::optional<int> parse(int argc, char** argv, Action& action, LogOptions& log) {
  CLI::App app("evalcar evaluates the checkpoints of a training run, beside it.", "evalcar");
  app.set_version_flag("--version", std::string("evalcar ") + EVALCAR_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  add_log_flags(app, log);
  add_run(app, action);
  add_serve(app, action);
  add_eval(app, action);
  add_merge(app, action);
  add_merge_request(app, action);
  add_inspect(app, action);
  add_results(app, action);
  add_status(app, action);
  add_retry(app, action);
  add_backfill(app, action);
  add_cancel(app, action);
  add_pin(app, action);
  add_prune(app, action);
  add_tasks(app, action);
  add_models(app, action);
  add_score(app, action);
  add_push(app, action);
  add_doctor(app, action);
  add_init(app, action);
  if (argc > 1 && argv[1][0] != '-' && !knows_command(app, argv[1])) return kExitUsage;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitUsage;
  }
  return std::nullopt;
}

}  // namespace

int run_cli(int argc, char** argv) {
  end_plainly_without_memory();
  (void)agent_service::occupy_standard_descriptors();
  raise_open_files_limit();
  Action action;
  LogOptions log;
  if (const auto exit_code = parse(argc, argv, action, log); exit_code.has_value()) {
    return *exit_code;
  }
  if (const Status ready = set_up_log(log); !ready.has_value()) {
    std::cerr << "evalcar: --log-file: " << ready.error().message << '\n';
    return kExitUsage;
  }
  RealFileSystem files;
  const int exit_code = action(files);
  std::cout.flush();
  if (!std::cout) return exit_code == kExitDone ? kExitFailed : exit_code;  // e.g. a full disk
  return exit_code;
}

}  // namespace evalcar::cli
