#include "agent/cli/shared_flags.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "agent/cli/exit_code.h"

namespace evalcar::cli {
namespace {

bool is_text(const std::string& key) {
  return key == "watch.output_dir" || key == "evaluate.data_dir" || key == "evaluate.tasks_dir" ||
         key == "evaluate.tasks" || key == "evaluate.device";
}

}  // namespace

void Overrides::add(CLI::App* command, const std::string& flag, const std::string& key,
                    const std::string& help) {
  command->add_option_function<std::string>(
      flag,
      [this, flag, key](const std::string& text) {
        const std::string name = flag.substr(0, flag.find(','));
        // Text keys are quoted: a folder named "5" is no number.
        list_->push_back({key, is_text(key) ? config::quote(text) : text, name});
      },
      help);
}

void Overrides::add_set(CLI::App* command) {
  command
      ->add_option_function<std::vector<std::string>>(
          "--set",
          [this](const std::vector<std::string>& options) {
            for (const std::string& option : options) {
              auto parsed = config::parse_set_option(option);
              if (!parsed.has_value()) throw CLI::ValidationError(parsed.error().message);
              list_->push_back(std::move(parsed).value());
            }
          },
          "Any configuration key: section.key=value")
      ->allow_extra_args(false);
}

void add_evaluation_flags(CLI::App* command, Overrides& overrides) {
  overrides.add(command, "--tasks", "evaluate.tasks", "Tasks, separated by commas");
  overrides.add(command, "--data", "evaluate.data_dir", "Folder with the data sets");
  overrides.add(command, "--tasks-dir", "evaluate.tasks_dir", "Folder with task files of your own");
  overrides.add(command, "--device", "evaluate.device", "auto, cpu or cuda:N");
  overrides.add(command, "--dtype", "evaluate.dtype", "auto, float32 or bfloat16");
  overrides.add(command, "--batch-size", "evaluate.batch_size", "auto or a number");
  overrides.add(command, "--limit", "evaluate.limit", "A count, or a fraction of each task");
  overrides.add(command, "--offset", "evaluate.offset", "First document of each task");
  overrides.add_set(command);
}

void DatabaseFlags::add(CLI::App* command) {
  command->add_option("--db", db, "Database file");
  command->add_option("--output-dir", output_dir, "The trainer's output directory");
  command->add_option("--config", config_file, "Configuration file");
}

Result<DatabaseChoice> DatabaseFlags::choice(const FileSystem& files) const {
  DatabaseChoice choice;
  choice.db = db;
  choice.output_dir = output_dir;
  if (config_file.empty()) return choice;
  EVALCAR_ASSIGN_OR_RETURN(const auto config, config::load(files, config_file, {}));
  choice.config_store = config.settings.store.path;
  choice.config_outputs = config.settings.watch.output_dir;
  choice.config_tasks_dir = config.settings.evaluate.tasks_dir;
  return choice;
}

int with_database(const DatabaseFlags& flags, FileSystem& files,
                  const std::function<int(DatabaseChoice)>& command) {
  auto choice = flags.choice(files);
  if (!choice.has_value()) {
    std::cerr << "evalcar: " << choice.error().message << '\n';
    return kExitUsage;
  }
  return command(std::move(choice).value());
}

}  // namespace evalcar::cli
