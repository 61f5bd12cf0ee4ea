#include "agent/cli/command_options.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string_view>

#include "agent/cli/eval_command.h"
#include "agent/cli/inspect_command.h"
#include "agent/cli/merge_command.h"
#include "agent/cli/shared_flags.h"
#include "agent/cli/small_commands.h"
#include "store/checkpoint/layout.h"

namespace evalcar::cli {
namespace {

checkpoint::WeightsKind kind_of(const std::string& name) {
  return checkpoint::weights_kind_from_name(name).value_or(checkpoint::WeightsKind::kRegular);
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

/// A number that a checkpoint's folder can have in its name.
std::string is_step(const std::string& text) {
  const bool valid = checkpoint::step_of_name(text, "{step}").has_value();
  return valid ? "" : "expected a step, a whole number from 0 up, not " + text;
}

/// An empty word is most often a variable of a shell that nobody set; taken as not given it would
/// choose something else in silence.
std::string is_given(const std::string& text) {
  return text.empty() ? "expected a name, not an empty word" : "";
}

/// Which checkpoints of a run folder, and which shards of a checkpoint, are meant.
void add_choices(CLI::App& command, std::string& pattern, std::string& state_dict_dirname) {
  command
      .add_option("--pattern", pattern,
                  "Names of a run folder's checkpoints (checkpoint-{step}, step-{step} or "
                  "checkpoint_{step})")
      ->check(is_given);
  command
      .add_option("--state_dict_dirname,--state-dict-dirname", state_dict_dirname,
                  "The shards' folder")
      ->check(is_given);
}

}  // namespace

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

void add_merge(CLI::App& app, Action& action) {
  auto* const command = app.add_subcommand("merge", "Shards into one Hugging Face folder");
  auto options = std::make_shared<MergeOptions>();
  auto weights = std::make_shared<std::string>("regular");
  command
      ->add_option("--input_dir,--input-dir", options->inputs,
                   "Run folder, or checkpoints, with commas between them")
      ->required();
  command->add_option("--output_dir,--output-dir", options->output_dir, "Where the folder goes")
      ->check(is_given);
  command->add_option("--type", options->type, "hf, fsdp2, dcp or auto");
  command->add_option("--step", options->step, "This checkpoint of a run folder")->check(is_step);
  add_choices(*command, options->pattern, options->state_dict_dirname);
  command->add_option("--weights", *weights, "regular or ema")
      ->check(CLI::IsMember({"regular", "ema"}));
  command->add_option("--dtype", options->dtype, "bfloat16, float16, float32 or keep");
  command->add_option("--max-shard-size", options->max_shard_size, "Largest file, e.g. 5GB");
  command->add_flag("--merge", options->average, "The mean of all given checkpoints");
  command
      ->add_option("--merge-weights,--merge_weights", options->average_weights,
                   "Weight of each checkpoint in that mean, e.g. 1,2,1")
      ->delimiter(',');
  command
      ->add_option("--model_name_or_class,--model-name-or-class", options->model_name_or_class,
                   "Folder or hub id with the configuration that the checkpoint lacks")
      ->check(is_given);
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
  command->add_option("--diff", options->diff, "Compare with another checkpoint")->check(is_given);
  command
      ->add_option("--model_name_or_class,--model-name-or-class", options->model_name_or_class,
                   "Folder or hub id with what the checkpoint lacks (an adapter's base, too)")
      ->check(is_given);
  add_choices(*command, options->pattern, options->state_dict_dirname);
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([&action, options, weights] {
    action = [options, weights](FileSystem& files) {
      options->weights = kind_of(*weights);
      return run_inspect(*options, files, std::cout, std::cerr);
    };
  });
}

}  // namespace evalcar::cli
