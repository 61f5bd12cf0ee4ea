// Every command and its options. Parsing only fills in the option structs; the work is done after
// CLI11's objects are gone, so that the resident agent does not carry them.
#include "agent/cli/cli.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>

#include "agent/cli/eval_command.h"
#include "agent/cli/exit_code.h"
#include "agent/cli/inspect_command.h"
#include "agent/cli/log.h"
#include "agent/cli/merge_command.h"
#include "agent/cli/out_of_memory.h"
#include "agent/cli/results_command.h"
#include "agent/cli/run_command.h"
#include "agent/cli/shared_flags.h"
#include "agent/cli/small_commands.h"
#include "agent/cli/status_command.h"
#include "agent/config/units.h"
#include "agent/service/standard_descriptors.h"
#include "evaluator/tasks/task_file.h"
#include "store/base/open_files.h"

namespace evalcar::cli {
namespace {

using Action = std::function<int(FileSystem&)>;

checkpoint::WeightsKind kind_of(const std::string& name) {
  return checkpoint::weights_kind_from_name(name).value_or(checkpoint::WeightsKind::kRegular);
}

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

void add_eval(CLI::App& app, Action& action) {
  auto* const command = app.add_subcommand("eval", "Evaluate one checkpoint, without a daemon");
  auto options = std::make_shared<EvalOptions>();
  auto weights = std::make_shared<std::string>("regular");
  auto overrides = std::make_shared<Overrides>();
  command->add_option("CHECKPOINT", options->checkpoint, "Folder of the checkpoint")->required();
  add_evaluation_flags(command, *overrides);
  command->add_option("--config", options->config_file, "Configuration file (TOML)");
  command->add_option("--output", options->output, "Folder for the results files");
  command->add_option("--weights", *weights, "regular or ema")
      ->check(CLI::IsMember({"regular", "ema"}));
  command->add_flag("--json", options->json, "One JSON document instead of the table");
  command->callback([&action, options, overrides, weights] {
    action = [options, overrides, weights](FileSystem& files) {
      EvalOptions eval = *options;
      eval.weights = kind_of(*weights);
      eval.overrides = overrides->list();
      return run_eval(eval, files, std::cout, std::cerr);
    };
  });
}

/// Commas separate, but where something lies there by its whole name ("lr=1,bs=8").
std::vector<std::string> split_inputs(const FileSystem& files,
                                      const std::vector<std::string>& given) {
  std::vector<std::string> inputs;
  for (const std::string& whole : given) {
    std::string_view rest = whole;
    while (rest.find(',') != std::string_view::npos && !files.info(std::string(rest)).has_value()) {
      const std::size_t comma = rest.find(',');
      inputs.emplace_back(rest.substr(0, comma));
      rest.remove_prefix(comma + 1);
    }
    inputs.emplace_back(rest);
  }
  return inputs;
}

void add_merge(CLI::App& app, Action& action) {
  auto* const command = app.add_subcommand("merge", "Shards into one Hugging Face folder");
  auto options = std::make_shared<MergeOptions>();
  auto weights = std::make_shared<std::string>("regular");
  command
      ->add_option("--input_dir,--input-dir", options->inputs,
                   "Run folder, or checkpoints, with commas between them")
      ->required();
  command->add_option("--output_dir,--output-dir", options->output_dir, "Where the folder goes");
  command->add_option("--type", options->type, "hf, fsdp2, dcp or auto");
  command->add_option("--step", options->step, "This checkpoint of a run folder");
  command->add_option(
      "--pattern", options->pattern,
      "Names of a run folder's checkpoints (checkpoint-{step}, step-{step} or checkpoint_{step})");
  command->add_option("--state_dict_dirname,--state-dict-dirname", options->state_dict_dirname,
                      "The shards' folder");
  command->add_option("--weights", *weights, "regular or ema")
      ->check(CLI::IsMember({"regular", "ema"}));
  command->add_option("--dtype", options->dtype, "bfloat16, float32 or keep");
  command->add_option("--max-shard-size", options->max_shard_size, "Largest file, e.g. 5GB");
  command->add_flag("--merge", options->average, "The mean of all given checkpoints");
  command
      ->add_option("--merge-weights,--merge_weights", options->average_weights,
                   "Weight of each checkpoint in that mean, e.g. 1,2,1")
      ->delimiter(',');
  command->add_option("--model_name_or_class,--model-name-or-class", options->model_name_or_class,
                      "Folder or hub id with the configuration that the checkpoint lacks");
  command->add_option("--data", options->data_dir, "Folder that may hold that model, too");
  command->add_flag("--dry-run", options->dry_run, "Only say what would be written");
  command->callback([&action, options, weights] {
    action = [options, weights](FileSystem& files) {
      options->weights = kind_of(*weights);
      options->inputs = split_inputs(files, options->inputs);
      return run_merge(*options, files, std::cout, std::cerr);
    };
  });
}

/// Not for people.
void add_merge_request(CLI::App& app, Action& action) {
  app.add_subcommand("merge-request", "")->group("")->callback([&action] {
    action = [](FileSystem& files) { return run_merge_request(files); };
  });
}

void add_inspect(CLI::App& app, Action& action) {
  auto* const command = app.add_subcommand("inspect", "What a checkpoint is and holds");
  auto options = std::make_shared<InspectOptions>();
  auto weights = std::make_shared<std::string>("regular");
  command
      ->add_option("CHECKPOINT", options->checkpoint,
                   "Folder of the checkpoint, or of a run: its newest complete one")
      ->required();
  command
      ->add_option("--weights", *weights,
                   "regular or ema; average: of a folder of several checkpoints")
      ->check(CLI::IsMember({"regular", "ema", "average"}));
  command->add_flag("--hash", options->hash, "A SHA-256 of each tensor");
  command->add_option("--diff", options->diff, "Compare with another checkpoint");
  command->add_option("--model_name_or_class,--model-name-or-class", options->model_name_or_class,
                      "Folder or hub id with what the checkpoint lacks (an adapter's base, too)");
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([&action, options, weights] {
    action = [options, weights](FileSystem& files) {
      options->weights = kind_of(*weights);
      return run_inspect(*options, files, std::cout, std::cerr);
    };
  });
}

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

void add_database_commands(CLI::App& app, Action& action) {
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
  auto* const prune =
      app.add_subcommand("prune", "Remove results files and samples of old steps, never numbers");
  auto prune_flags = std::make_shared<DatabaseFlags>();
  auto rules = std::make_shared<PruneRules>();
  prune_flags->add(prune);
  prune->add_option("--keep", rules->keep, "The newest so many steps stay")
      ->check(CLI::NonNegativeNumber);
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

void add_tasks_and_models(CLI::App& app, Action& action) {
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

void add_doctor_and_init(CLI::App& app, Action& action) {
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
  auto* const init = app.add_subcommand("init", "Write a commented configuration file");
  auto wanted = std::make_shared<InitOptions>();
  auto given = std::make_shared<Overrides>();
  init->add_option("FILE", wanted->path, "File to write; \"-\" prints it");
  given->add(init, "--output-dir", "watch.output_dir", "The trainer's output directory");
  add_evaluation_flags(init, *given);
  auto* const drop_in = init->add_option(
      "--systemd", wanted->drop_in_folder,
      "Write the drop-in of the unit evalcar@NAME for --config …/NAME.toml instead: "
      "its user, and where it may write; into this folder, or to standard output");
  drop_in->expected(0, 1);
  init->add_option("--config", wanted->config_file, "The configuration of that unit");
  init->callback([&action, wanted, given, drop_in] {
    wanted->systemd = drop_in->count() > 0;
    action = [wanted, given](FileSystem& files) {
      wanted->overrides = given->list();
      return run_init(*wanted, files, std::cout, std::cerr);
    };
  });
}

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
  add_database_commands(app, action);
  add_tasks_and_models(app, action);
  add_score(app, action);
  add_push(app, action);
  add_doctor_and_init(app, action);
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
