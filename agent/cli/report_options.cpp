#include "agent/cli/command_options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "agent/cli/results_command.h"
#include "agent/cli/shared_flags.h"
#include "agent/cli/small_commands.h"
#include "agent/cli/status_command.h"
#include "evaluator/tasks/task_file.h"

namespace evalcar::cli {

void add_results(CLI::App& app, Action& action) {
  auto* const command =
      app.add_subcommand("results", "The numbers, as table, JSON, CSV or picture");
  auto options = std::make_shared<ResultsOptions>();
  auto flags = std::make_shared<DatabaseFlags>();
  auto steps = std::make_shared<std::vector<std::int64_t>>();
  auto tasks_dir = std::make_shared<std::string>();
  flags->add(command);
  command->add_option("--run", options->run, "Name of a run; default: the newest");
  command->add_option("--task", options->task, "Only this task");
  command->add_option("--metric", options->metric, "Only this metric");
  command->add_option("--weights", options->weights, "Only this kind")
      ->check(CLI::IsMember({"regular", "ema", "average"}));
  command->add_option("--format", options->format, "table, json or csv")
      ->check(CLI::IsMember({"table", "json", "csv"}));
  command->add_flag_function(
      "--json", [options](std::int64_t) { options->format = "json"; }, "The same as --format json");
  command->add_flag("--best", options->best, "Only the best step");
  command->add_option("--compare", *steps, "Two steps")->expected(2);
  command->add_option("--tasks-dir", *tasks_dir,
                      "Folder with task files of your own, for their metrics' aliases");
  command->add_option("--plot", options->plot, "Write a picture to this SVG file");
  command->add_option("--html", options->html,
                      "Write a page with curves and tables to this file, which needs no server");
  command->callback([&action, options, flags, steps, tasks_dir] {
    action = [options, flags, steps, tasks_dir](FileSystem& files) {
      return with_database(*flags, files, [&](DatabaseChoice choice) {
        options->database = std::move(choice);
        if (steps->size() == 2) options->compare = {steps->at(0), steps->at(1)};
        const std::string own_tasks =
            tasks_dir->empty() ? options->database.config_tasks_dir : *tasks_dir;
        options->resolve_alias = [&files, own_tasks](const std::string& task,
                                                     const std::string& metric) {
          const auto file = tasks::find_task(files, own_tasks, task);
          if (!file.has_value() || !file->aliases.contains(metric)) return metric;
          return file->aliases.at(metric);
        };
        const SystemClock clock;
        return run_results(*options, files, clock, std::cout, std::cerr);
      });
    };
  });
}

void add_status(CLI::App& app, Action& action) {
  auto* const status = app.add_subcommand("status", "What the sidecar does now");
  auto flags = std::make_shared<DatabaseFlags>();
  auto options = std::make_shared<StatusOptions>();
  flags->add(status);
  auto* const json = status->add_flag("--json", options->json, "One JSON document");
  status
      ->add_flag("--prometheus", options->prometheus,
                 "Prometheus' text format, for node_exporter's textfile collector")
      ->excludes(json);
  status->callback([&action, flags, options] {
    action = [flags, options](FileSystem& files) {
      return with_database(*flags, files, [&](DatabaseChoice choice) {
        const SystemClock clock;
        options->database = std::move(choice);
        options->bars = ::isatty(STDOUT_FILENO) == 1;
        return run_status(*options, files, clock, std::cout, std::cerr);
      });
    };
  });
}

void add_retry(CLI::App& app, Action& action) {
  auto* const retry = app.add_subcommand("retry", "Another chance for a step that failed");
  auto retry_flags = std::make_shared<DatabaseFlags>();
  auto step = std::make_shared<std::int64_t>(0);
  retry_flags->add(retry);
  retry->add_option("STEP", *step, "Step of the checkpoint")->required();
  retry->callback([&action, retry_flags, step] {
    action = [retry_flags, step](FileSystem& files) {
      return with_database(*retry_flags, files, [&](const DatabaseChoice& choice) {
        return run_retry(choice, *step, files, std::cout, std::cerr);
      });
    };
  });
}

void add_backfill(CLI::App& app, Action& action) {
  auto* const backfill = app.add_subcommand(
      "backfill", "Measure what the policy or a cadence passed over, where the weights are there");
  auto flags = std::make_shared<DatabaseFlags>();
  flags->add(backfill);
  backfill->callback([&action, flags] {
    action = [flags](FileSystem& files) {
      return with_database(*flags, files, [&](const DatabaseChoice& choice) {
        return run_backfill(choice, files, std::cout, std::cerr);
      });
    };
  });
}

void add_cancel(CLI::App& app, Action& action) {
  auto* const cancel = app.add_subcommand("cancel", "End an evaluation that has not been measured");
  auto flags = std::make_shared<DatabaseFlags>();
  auto evaluation = std::make_shared<std::int64_t>(0);
  flags->add(cancel);
  cancel
      ->add_option("ID", *evaluation,
                   "Number of the evaluation (evaluation_id in evalcar status --json)")
      ->required();
  cancel->callback([&action, flags, evaluation] {
    action = [flags, evaluation](FileSystem& files) {
      return with_database(*flags, files, [&](const DatabaseChoice& choice) {
        return run_cancel(choice, *evaluation, files, std::cout, std::cerr);
      });
    };
  });
}

void add_pin(CLI::App& app, Action& action) {
  auto* const pin =
      app.add_subcommand("pin", "Keep the weights of a step, whatever retention does");
  auto flags = std::make_shared<DatabaseFlags>();
  auto step = std::make_shared<std::int64_t>(0);
  auto off = std::make_shared<bool>(false);
  flags->add(pin);
  pin->add_option("STEP", *step, "Step of the checkpoint")->required();
  pin->add_flag("--off", *off, "No longer");
  pin->callback([&action, flags, step, off] {
    action = [flags, step, off](FileSystem& files) {
      return with_database(*flags, files, [&](const DatabaseChoice& choice) {
        return run_pin(choice, *step, *off, files, std::cout, std::cerr);
      });
    };
  });
}

void add_prune(CLI::App& app, Action& action) {
  auto* const prune =
      app.add_subcommand("prune", "Remove results files and samples of old steps, never numbers");
  auto prune_flags = std::make_shared<DatabaseFlags>();
  auto rules = std::make_shared<PruneRules>();
  prune_flags->add(prune);
  prune->add_option("--keep", rules->keep, "The newest so many steps stay")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}));
  prune->add_option("--older-than", rules->older_than, "What was published since stays, e.g. 30d");
  prune->add_flag("--dry-run", rules->dry_run, "Only say what would go");
  prune->callback([&action, prune_flags, rules] {
    action = [prune_flags, rules](FileSystem& files) {
      return with_database(*prune_flags, files, [&](const DatabaseChoice& choice) {
        return run_prune(choice, *rules, files, std::cout, std::cerr);
      });
    };
  });
}

void add_push(CLI::App& app, Action& action) {
  auto* const command =
      app.add_subcommand("push", "Send late results to the training's TensorBoard and W&B");
  auto flags = std::make_shared<DatabaseFlags>();
  auto arguments = std::make_shared<std::vector<std::string>>();
  flags->add(command);
  for (const auto& [flag, help] : std::vector<std::pair<std::string, std::string>>{
           {"--since", "Only lines with a higher seq"},
           {"--tensorboard", "Folder of the event files (default: the training's)"},
           {"--wandb", "ENTITY/PROJECT/RUN (default: the training's)"},
           {"--folder", "Where publish.dir is, if that is set"}}) {
    command->add_option_function<std::string>(
        flag,
        [arguments, flag = flag](const std::string& value) {
          arguments->push_back(flag + "=" + value);
        },
        help);
  }
  command->add_flag_function(
      "--dry-run", [arguments](std::int64_t) { arguments->push_back("--dry-run"); },
      "Only say what would be sent");
  command->callback([&action, flags, arguments] {
    action = [flags, arguments](FileSystem& files) {
      return with_database(*flags, files, [&](const DatabaseChoice& database) {
        return run_push(database, *arguments, files, std::cerr);
      });
    };
  });
}

}  // namespace evalcar::cli
