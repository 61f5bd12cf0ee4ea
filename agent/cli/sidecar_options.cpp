#include "agent/cli/command_options.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "agent/cli/run_command.h"
#include "agent/cli/shared_flags.h"
#include "agent/cli/small_commands.h"
#include "agent/config/units.h"

namespace evalcar::cli {

void add_run(CLI::App& app, Action& action) {
  auto* const command = app.add_subcommand("run", "The sidecar: watch, evaluate, publish");
  auto options = std::make_shared<RunOptions>();
  auto overrides = std::make_shared<Overrides>();
  command->add_option_function<std::vector<std::string>>(
      "OUTPUT_DIR",
      [overrides, options](const std::vector<std::string>& dirs) {
        std::string list;
        for (const std::string& dir : dirs) {
          list.append(list.empty() ? "[" : ", ").append(config::quote(dir));
        }
        options->overrides.push_back({"watch.output_dir", list + "]", "OUTPUT_DIR"});
      },
      "The trainer's output directory");
  command->add_option("--config", options->config_file, "Configuration file (TOML)");
  add_evaluation_flags(command, *overrides);
  command->add_flag("--once", options->once, "Evaluate what is there, then stop");
  command->add_flag("--print-config", options->print_config, "Show the effective configuration");
  command->callback([&action, options, overrides] {
    action = [options, overrides](FileSystem& files) {
      RunOptions run = *options;
      run.overrides.insert(run.overrides.end(), overrides->list().begin(), overrides->list().end());
      return run_run(run, files, std::cout, std::cerr);
    };
  });
}

void add_serve(CLI::App& app, Action& action) {
  auto* const command =
      app.add_subcommand("serve", "The HTTP API alone: evaluates what is asked for");
  auto options = std::make_shared<RunOptions>();
  auto overrides = std::make_shared<Overrides>();
  options->serve = true;
  command->add_option("--config", options->config_file, "Configuration file (TOML)");
  command->add_option("--host", options->host, "Address to listen on (127.0.0.1)");
  command->add_option("--port", options->port, "Port to listen on (8000)")
      ->check(CLI::Range(1, 65535));
  command->add_option("--root", options->roots,
                      "Folder below which requests may name checkpoints; may be repeated");
  add_evaluation_flags(command, *overrides);
  command->callback([&action, options, overrides] {
    action = [options, overrides](FileSystem& files) {
      RunOptions serve = *options;
      serve.overrides = overrides->list();
      return run_run(serve, files, std::cout, std::cerr);
    };
  });
}

void add_doctor(CLI::App& app, Action& action) {
  auto* const doctor = app.add_subcommand("doctor", "Check everything an evaluation needs");
  auto options = std::make_shared<DoctorOptions>();
  auto overrides = std::make_shared<Overrides>();
  doctor->add_option("CHECKPOINT", options->checkpoint, "A checkpoint to look at, too");
  doctor->add_option("--config", options->config_file, "Configuration file (TOML)");
  doctor->add_option("--server", options->server, "A server to ask, too: http://host:port");
  add_evaluation_flags(doctor, *overrides);
  doctor->add_flag("--json", options->json, "One JSON document");
  doctor->callback([&action, options, overrides] {
    action = [options, overrides](FileSystem& files) {
      options->overrides = overrides->list();
      return run_doctor(*options, files, SystemClock(), std::cout);
    };
  });
}

void add_init(CLI::App& app, Action& action) {
  auto* const init = app.add_subcommand("init", "Write a commented configuration file");
  auto options = std::make_shared<InitOptions>();
  auto overrides = std::make_shared<Overrides>();
  init->add_option("FILE", options->path, "File to write; \"-\" prints it");
  overrides->add(init, "--output-dir", "watch.output_dir", "The trainer's output directory");
  add_evaluation_flags(init, *overrides);
  auto* const drop_in = init->add_option(
      "--systemd", options->drop_in_folder,
      "Write the drop-in of the unit evalcar@NAME for --config …/NAME.toml instead: "
      "its user, and where it may write; into this folder, or to standard output");
  drop_in->expected(0, 1);
  init->add_option("--config", options->config_file, "The configuration of that unit");
  init->callback([&action, options, overrides, drop_in] {
    options->systemd = drop_in->count() > 0;
    action = [options, overrides](FileSystem& files) {
      options->overrides = overrides->list();
      return run_init(*options, files, std::cout, std::cerr);
    };
  });
}

}  // namespace evalcar::cli
