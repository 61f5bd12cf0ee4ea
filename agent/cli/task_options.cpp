#include "agent/cli/command_options.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "agent/cli/small_commands.h"

namespace evalcar::cli {

void add_tasks(CLI::App& app, Action& action) {
  auto* const command = app.add_subcommand("tasks", "The tasks, and how to fetch their data");
  auto options = std::make_shared<TasksOptions>();
  command->add_option("--tasks-dir", options->tasks_dir, "Folder with task files of your own");
  command->add_option("--check", options->check, "Explain what is wrong with a task file");
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([&action, options] {
    action = [options](FileSystem& files) {
      return run_tasks(*options, files, std::cout, std::cerr);
    };
  });
}

void add_models(CLI::App& app, Action& action) {
  auto* const models = app.add_subcommand("models", "The models that can be evaluated");
  auto json = std::make_shared<bool>(false);
  models->add_flag("--json", *json, "One JSON document");
  models->callback(
      [&action, json] { action = [json](FileSystem&) { return run_models(*json, std::cout); }; });
}

void add_score(CLI::App& app, Action& action) {
  auto* const command = app.add_subcommand("score", "Score logged samples again, without a model");
  auto arguments = std::make_shared<std::vector<std::string>>();
  for (const auto& [flag, help] : std::vector<std::pair<std::string, std::string>>{
           {"--task", "Task name"},
           {"--samples", "Samples file (JSONL), ours or lmms-eval's"},
           {"--data", "Folder of the data sets"},
           {"--tasks-dir", "Folder with task files of your own"},
           {"--compat", "lmms-eval or strict"}}) {
    auto* const option = command->add_option_function<std::string>(
        flag,
        [arguments, flag = flag](const std::string& value) {
          arguments->insert(arguments->end(), {flag, value});
        },
        help);
    if (flag == "--task" || flag == "--samples") option->required();
  }
  command->add_flag_function(
      "--json", [arguments](std::int64_t) { arguments->push_back("--json"); }, "One JSON document");
  command->callback([&action, arguments] {
    action = [arguments](FileSystem& files) { return run_score(*arguments, files, std::cerr); };
  });
}

}  // namespace evalcar::cli
