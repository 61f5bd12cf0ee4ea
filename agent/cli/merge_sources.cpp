#include "agent/cli/merge_sources.h"

#include <algorithm>
#include <cctype>
#include <ostream>

#include "agent/cli/checkpoint_choice.h"
#include "agent/cli/usage_error.h"
#include "store/base/text.h"
#include "store/checkpoint/adapter_base.h"
#include "store/checkpoint/config_warnings.h"
#include "store/checkpoint/hub_cache.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/output_place.h"
#include "store/checkpoint/plan_warnings.h"
#include "store/checkpoint/tie_config.h"

namespace evalcar::cli {
namespace {

using checkpoint::Layout;
using checkpoint::LayoutOptions;
using checkpoint::Plan;
using checkpoint::WeightsKind;

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20U;

bool has_config(const FileSystem& files, const std::string& folder) {
  return files.info_followed(join_path(folder, "config.json")).has_value();
}

/// The checkpoints of a run folder to merge: that of --step, all with --merge, else the newest
/// complete one.
Result<std::vector<std::string>> choose_from_run(const FileSystem& files, const std::string& run,
                                                 const StepsOfRun& found,
                                                 const MergeOptions& options,
                                                 const LayoutOptions& layout, std::ostream& err) {
  const auto folder = [&](std::int64_t step) { return join_path(run, found.name(step)); };
  if (found.steps.empty()) return no_checkpoints(files, run, options.pattern);
  if (options.step) {
    if (std::find(found.steps.begin(), found.steps.end(), *options.step) != found.steps.end()) {
      return std::vector{folder(*options.step)};
    }
    return make_error(
        ErrorCode::kNotFound,
        folder(*options.step) + ": is not there; the newest is " + found.name(found.steps[0]));
  }
  CompleteCheckpoints complete =
      complete_checkpoints(files, run, found, options.weights, layout, options.average);
  for (const std::string& why : complete.left_out) {
    err << "evalcar merge: left out: " << printable(why) << "\n";
  }
  if (!complete.folders.empty()) return std::move(complete.folders);
  const bool has_ema = std::ranges::any_of(found.steps, [&](std::int64_t step) {
    return files.info_followed(join_path(folder(step), layout.ema_shard_folder)).has_value();
  });
  if (options.weights == WeightsKind::kEma && !has_ema && !layout.shard_folders_only) {
    return make_error(
        ErrorCode::kUnavailable,
        "--weights ema: " + run + ": none of its " + std::to_string(found.steps.size()) +
            " checkpoints holds EMA weights (" + layout.ema_shard_folder +
            "/): was EMA enabled in that training? Without --weights the regular ones are "
            "merged");
  }
  // The newest one's own reason says most.
  const std::string newest = folder(found.steps[0]);
  const auto plan = checkpoint::make_plan(files, newest, options.weights, layout);
  return plan.has_value() ? make_error(ErrorCode::kUnavailable, run + ": changed meanwhile")
                          : explain_missing(files, newest, plan.error(), layout);
}

/// --step beside a checkpoint may only say what the checkpoint says itself.
Status check_step(const FileSystem& files, const MergeOptions& options, const std::string& folder,
                  const Result<checkpoint::LayoutReport>& report) {
  if (!options.step) return {};
  auto step = step_of_checkpoint(files, folder, checkpoint_patterns(options.pattern));
  if (!step && report.has_value()) step = report->step;
  if (step == options.step) return {};
  return usage_error(
      "--step " + std::to_string(*options.step) + ": " + folder + " is a checkpoint itself, " +
      (step ? "of step " + std::to_string(*step) : "of a step that it does not tell"));
}

/// The folders that --input_dir names. Where those of shards are named, these are what is merged.
Result<std::vector<std::string>> find_inputs(const FileSystem& files, MergeOptions& options,
                                             LayoutOptions& layout) {
  if (options.inputs.empty()) return usage_error("--input_dir: give a run folder or checkpoints");
  std::vector<std::string> folders;
  std::optional<std::string> shards;
  for (const std::string& input : options.inputs) {
    auto named =
        find_input(files, input, checkpoint_patterns(options.pattern), options.state_dict_dirname,
                   layout, "a checkpoint, such as RUN/checkpoint-500, or the run folder around it");
    if (!named.has_value()) return with_context(named.error(), "--input_dir");
    if (shards.value_or(named->shard_folder) != named->shard_folder) {
      return usage_error("--input_dir: " + input +
                         " is not of the same folder of shards as the others");
    }
    shards = named->shard_folder;
    folders.push_back(std::move(named->path));
  }
  if (shards->empty() || options.state_dict_dirname == *shards) return folders;
  if (!options.state_dict_dirname.empty()) {
    return usage_error("--state_dict_dirname " + options.state_dict_dirname +
                       ": --input_dir names " + *shards);
  }
  options.state_dict_dirname = *shards;
  return folders;
}

/// A run folder whose checkpoints have names of their own: its final model is merged.
void tell_of_others(const FileSystem& files, const std::string& folder, std::ostream& err) {
  const std::string hint = pattern_hint(files, folder);
  if (hint.empty()) return;
  err << "evalcar merge: the weights in " << printable(folder) << " itself are merged; " << hint
      << "\n";
}

/// Absolute folders of the checkpoints that the options mean.
Result<std::vector<std::string>> choose_checkpoints(const FileSystem& files,
                                                    std::vector<std::string> folders,
                                                    const MergeOptions& options,
                                                    const LayoutOptions& layout,
                                                    std::ostream& err) {
  const std::vector<std::string> patterns = checkpoint_patterns(options.pattern);
  if (folders.size() == 1) {
    LayoutOptions any = layout;
    any.shard_folders_only = false;
    const auto report = checkpoint::inspect_layout(files, folders[0], any);
    EVALCAR_ASSIGN_OR_RETURN(const StepsOfRun found, steps_of_run(files, folders[0], patterns));
    const bool is_run = !found.steps.empty();
    const bool named_checkpoint = step_in_name(folders[0], patterns).has_value() && !is_run;
    const bool asks_for_steps = !options.pattern.empty() || is_run;
    const bool known_but_unread =
        !report.has_value() && !report.error().retryable && !is_run && options.pattern.empty();
    if (named_checkpoint || (report.has_value() && !asks_for_steps) || known_but_unread) {
      EVALCAR_RETURN_IF_ERROR(check_step(files, options, folders[0], report));
      if (report.has_value()) tell_of_others(files, folders[0], err);
      return folders;
    }
    if (report.has_value() && !options.step && !options.average) {  // by the training's final save
      err << "evalcar merge: left out: the weights in " << printable(folders[0])
          << " itself; of a run folder the newest complete checkpoint is taken\n";
    }
    return choose_from_run(files, folders[0], found, options, layout, err);
  }
  if (!options.average) {
    return usage_error("--input_dir: several checkpoints are given; --merge averages them");
  }
  if (options.step)
    return usage_error("--step: names a checkpoint of one run folder, not of several");
  return folders;
}

/// Which weights --state_dict_dirname makes of those of --weights, and how the result's folder
/// calls them.
Result<std::string> apply_dirname(MergeOptions& options, LayoutOptions& layout) {
  std::string& name = options.state_dict_dirname;
  const std::string usual(checkpoint::weights_kind_name(options.weights));
  if (name.empty()) return usual;
  const bool is_usual = name == layout.shard_folder;
  const bool is_ema = name == layout.ema_shard_folder;
  if (Status chosen = select_shard_folder(name, layout, options.weights); !chosen.has_value()) {
    return with_context(chosen.error(), "--state_dict_dirname");
  }
  if (is_ema) return std::string(checkpoint::weights_kind_name(WeightsKind::kEma));
  return is_usual ? usual : name;
}

bool is_type(const std::string& type) {
  return type == "auto" || type == "hf" || type == "fsdp2" || type == "dcp";
}

Status check_type(const MergeOptions& options, Layout layout, const std::string& folder) {
  if (options.type == "auto") return {};
  const bool is_dcp = layout == Layout::kDcp || layout == Layout::kDcpSafetensors;
  if (options.type == "dcp" && is_dcp) return {};
  if (options.type == "fsdp2" && layout == Layout::kLmmsEngineFsdp2) return {};
  // lmms-engine's "hf" is what its Hugging Face trainer writes: under FSDP a DCP folder, under
  // DeepSpeed ZeRO's partitions, with PEFT an adapter.
  if (options.type == "hf" && layout != Layout::kLmmsEngineFsdp2) return {};
  return usage_error("--type " + options.type + ": " + folder + " is of the layout " +
                     std::string(checkpoint::layout_name(layout)));
}

/// "Qwen2_5_VLForConditionalGeneration", "Qwen2Model": what transformers calls a class. An id of
/// the hub that looks like one is written with its organisation.
bool is_class_name(std::string_view name) {
  const bool identifier = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  });
  return identifier && std::isupper(static_cast<unsigned char>(name.front())) != 0 &&
         (name.find("For") != std::string_view::npos || name.ends_with("Model"));
}

/// Looks for a class in `architectures`.
class Architectures final : public checkpoint::JsonVisitor {
 public:
  explicit Architectures(const std::string& name) : name_(name) {}
  bool none() const { return none_; }
  bool found() const { return found_; }

 private:
  static bool is_listed(const checkpoint::JsonPath& path) {
    return path.size() == 2 && path[0] == "architectures" && path[1].empty();
  }
  std::string scalar(const checkpoint::JsonPath& path,
                     const checkpoint::JsonScalar& value) override {
    if (!is_listed(path)) return {};
    none_ = false;
    found_ |= value.kind == checkpoint::JsonScalar::Kind::kString && value.text == name_;
    return {};
  }
  std::string open(const checkpoint::JsonPath& path, bool) override {
    if (is_listed(path)) none_ = false;
    return {};
  }
  std::string close(const checkpoint::JsonPath&) override { return {}; }

  const std::string& name_;
  bool none_ = true;
  bool found_ = false;
};

/// Whether config.json names the class in `architectures`; true where it says nothing.
bool is_architecture(const FileSystem& files, const std::string& folder, const std::string& name) {
  auto text = read_file(files, join_path(folder, "config.json"), kMaxConfigBytes);
  if (!text.has_value()) return true;
  checkpoint::replace_non_finite(*text);
  Architectures named(name);
  const Status read =
      checkpoint::scan_json(*text, "config.json", checkpoint::kMaxConfigDepth, named);
  return !read.has_value() || named.none() || named.found();
}

/// The folder whose configuration and tokenizer the merged one gets where `folder` has none.
/// `given` is what find_given_model() said.
Result<std::string> choose_model(const FileSystem& files, const MergeOptions& options,
                                 const std::string& folder, const Result<std::string>& given,
                                 std::ostream& err) {
  if (checkpoint::is_adapter(files, folder)) {
    if (!given.has_value()) return given;
    return checkpoint::adapter_base(files, folder, *given);
  }
  const std::string& name = options.model_name_or_class;
  const bool complete = has_config(files, folder);
  if (!given.has_value()) {
    if (!complete || given.error().code != ErrorCode::kNotFound) return given;
    err << "evalcar merge: " << printable(name)
        << " is not on this machine, and not needed: " << printable(folder)
        << " has its own configuration\n";
    return std::string();
  }
  if (given->empty() && !name.empty()) {  // a class
    if (!complete) {
      return usage_error(
          "--model_name_or_class " + name + ": a class holds no configuration, and " + folder +
          " has no config.json; give the folder or the hub id of the model that training "
          "started from (or nothing, to merge the weights alone)");
    }
    if (!is_architecture(files, folder, name)) {
      err << "evalcar merge: " << printable(join_path(folder, "config.json"))
          << " names another class than " << name << "\n";
    }
  }
  return given;
}

/// The plan of one checkpoint; one without a configuration counts if nothing else is wrong with it.
Result<Plan> plan_of(const FileSystem& files, const std::string& folder,
                     const MergeOptions& options, const LayoutOptions& layout, std::ostream& err) {
  auto plan = checkpoint::make_plan(files, folder, options.weights, layout);
  if (plan.has_value() || layout.weights_only || has_config(files, folder)) return plan;
  LayoutOptions without_config = layout;
  without_config.weights_only = true;
  auto weights_alone = checkpoint::make_plan(files, folder, options.weights, without_config);
  if (!weights_alone.has_value()) {
    // A configuration may still come; what cannot be read stays so.
    const bool hopeless = weights_alone.error().code == ErrorCode::kCorruption ||
                          weights_alone.error().code == ErrorCode::kUnsupported;
    return hopeless ? weights_alone : plan;
  }
  err << "evalcar merge: " << printable(folder)
      << " has no config.json: the merged folder holds the weights alone "
      << "(--model_name_or_class names the model that has the rest)\n";
  return weights_alone;
}

}  // namespace

Result<std::string> find_given_model(const FileSystem& files, const std::string& name,
                                     const std::string& data_dir) {
  if (name.empty()) return std::string();
  auto found = checkpoint::find_model(files, {.id = name}, checkpoint::hub_places(data_dir));
  if (found.has_value() && has_config(files, *found)) return files.real_path(*found);
  if (is_class_name(name)) return std::string();
  if (!found.has_value()) return with_context(found.error(), "--model_name_or_class");
  return usage_error(
      "--model_name_or_class " + name +
      ": holds no config.json; expected the folder of a model as save_pretrained() or a "
      "download leaves it");
}

Result<MergeSources> find_merge_sources(const MergeOptions& given_options, const FileSystem& files,
                                        std::ostream& err) {
  MergeOptions options = given_options;
  if (!is_type(options.type)) {
    return usage_error("--type " + options.type + ": expected hf, fsdp2, dcp or auto");
  }
  EVALCAR_RETURN_IF_ERROR(check_pattern(options.pattern));
  EVALCAR_RETURN_IF_ERROR(check_dirname(options.state_dict_dirname));
  LayoutOptions layout;
  EVALCAR_ASSIGN_OR_RETURN(std::vector<std::string> inputs, find_inputs(files, options, layout));
  EVALCAR_ASSIGN_OR_RETURN(std::string kind, apply_dirname(options, layout));
  const Result<std::string> given =
      find_given_model(files, options.model_name_or_class, options.data_dir);
  if (given.has_value()) layout.base_model = *given;

  MergeSources sources;
  EVALCAR_ASSIGN_OR_RETURN(sources.folders,
                           choose_checkpoints(files, std::move(inputs), options, layout, err));
  const std::string& last = sources.folders.back();
  EVALCAR_ASSIGN_OR_RETURN(sources.model_folder, choose_model(files, options, last, given, err));
  for (const std::string& folder : sources.folders) {
    auto made = plan_of(files, folder, options, layout, err);
    if (!made.has_value()) return explain_missing(files, folder, made.error(), layout);
    Plan plan = std::move(made).value();
    EVALCAR_RETURN_IF_ERROR(check_type(options, plan.layout, folder));
    std::vector<std::string> warnings = checkpoint::warnings_of(files, plan);
    std::string steps = two_steps(files, folder, checkpoint_patterns(options.pattern));
    if (!steps.empty()) warnings.push_back(std::move(steps));
    const std::string& config_folder = has_config(files, folder) ? folder : sources.model_folder;
    for (std::string& warning : checkpoint::warnings_of_config(files, config_folder, plan))
      warnings.push_back(std::move(warning));
    for (const std::string& warning : warnings)
      err << "evalcar merge: warning: " << printable(warning) << "\n";
    sources.plans.push_back(std::move(plan));
  }
  if (options.average && sources.plans.size() > 1) {
    kind = kind == "regular" ? "average" : "average_" + kind;
  } else if (options.average) {
    err << "evalcar merge: --merge of one checkpoint alone is that checkpoint, no mean\n";
  }
  if (!options.output_dir.empty()) return sources;
  auto place = merged_place(files, last, checkpoint_patterns(options.pattern), kind);
  if (!place.has_value()) return usage_error(place.error().message + "; or give --output_dir");
  sources.default_output = std::move(place).value();
  return sources;
}

}  // namespace evalcar::cli
