#include "agent/cli/merge_command.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ostream>
#include <thread>

#include "store/checkpoint/adapter_base.h"
#include "store/checkpoint/hub_cache.h"
#include "store/checkpoint/merge.h"

namespace evalcar::cli {
namespace {

using checkpoint::Completeness;
using checkpoint::DType;
using checkpoint::Layout;
using checkpoint::LayoutOptions;
using checkpoint::MergeRequest;
using checkpoint::WeightsKind;

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kNotReady = 3;

std::atomic<bool> stop_requested{false};

/// SIGINT and SIGTERM set stop_requested as long as this lives.
class StopSignals {
 public:
  StopSignals() {
    stop_requested = false;
    struct sigaction action = {};
    action.sa_handler = [](int) { stop_requested = true; };
    ::sigaction(SIGINT, &action, &old_int_);
    ::sigaction(SIGTERM, &action, &old_term_);
  }
  ~StopSignals() {
    ::sigaction(SIGINT, &old_int_, nullptr);
    ::sigaction(SIGTERM, &old_term_, nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  struct sigaction old_int_ = {};
  struct sigaction old_term_ = {};
};

int exit_code(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
      return kUsage;
    case ErrorCode::kUnavailable:
      return kNotReady;
    default:
      return kFailed;
  }
}

Error usage(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

/// "5GB", "500MiB", "1.5GB", "1000": as in transformers, GB is 10^9 bytes and GiB is 2^30.
Result<std::uint64_t> parse_size(const std::string& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 8> kUnits = {{{"KIB", 1024.0},
                                           {"MIB", 1048576.0},
                                           {"GIB", 1073741824.0},
                                           {"KB", 1e3},
                                           {"MB", 1e6},
                                           {"GB", 1e9},
                                           {"B", 1.0},
                                           {"", 1.0}}};
  std::string upper = text;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  double number = 0;
  const auto [end, error] = std::from_chars(upper.data(), upper.data() + upper.size(), number);
  const std::string_view unit =
      std::string_view(upper).substr(static_cast<std::size_t>(end - upper.data()));
  for (const Unit& known : kUnits) {
    if (error != std::errc() || unit != known.name) continue;
    const double bytes = number * known.bytes;
    if (bytes >= 1 && bytes < 1e18) return static_cast<std::uint64_t>(bytes);
  }
  return usage("--max-shard-size " + text + ": expected a size such as 5GB or 500MiB");
}

Result<std::optional<DType>> parse_dtype(const std::string& name) {
  if (name == "keep") return std::optional<DType>();
  if (name == "bfloat16" || name == "bf16") return std::optional(DType::kBFloat16);
  if (name == "float32" || name == "fp32") return std::optional(DType::kFloat32);
  if (name == "float16" || name == "fp16") return std::optional(DType::kFloat16);
  return usage("--dtype " + name + ": expected bfloat16, float32 or keep");
}

/// Steps of the checkpoints in a run folder, newest first.
Result<std::vector<std::int64_t>> steps_of_run(const FileSystem& files, const std::string& run) {
  EVALCAR_ASSIGN_OR_RETURN(const auto entries, files.list(run));
  std::vector<std::int64_t> steps;
  for (const DirectoryEntry& entry : entries) {
    if (const auto step = checkpoint::step_of_name(entry.name)) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

bool is_complete(const FileSystem& files, const std::string& folder, WeightsKind kind,
                 const LayoutOptions& layout) {
  const auto report = checkpoint::inspect_layout(files, folder, layout);
  return report.has_value() &&
         std::any_of(report->kinds.begin(), report->kinds.end(), [&](const auto& state) {
           return state.kind == kind && state.completeness == Completeness::kComplete;
         });
}

/// The checkpoints of a run folder to merge: that of --step, all with --merge, else the newest
/// complete one.
Result<std::vector<std::string>> choose_from_run(const FileSystem& files, const std::string& run,
                                                 const MergeOptions& options,
                                                 const LayoutOptions& layout) {
  const auto folder = [&](std::int64_t step) {
    return join_path(run, "checkpoint-" + std::to_string(step));
  };
  if (options.step) return std::vector{folder(*options.step)};
  EVALCAR_ASSIGN_OR_RETURN(auto steps, steps_of_run(files, run));
  if (steps.empty()) {
    return make_error(ErrorCode::kUnavailable,
                      run + ": is neither a checkpoint nor a run folder with checkpoint-N in it");
  }
  std::vector<std::string> chosen;
  for (const std::int64_t step : steps) {
    if (!is_complete(files, folder(step), options.weights, layout)) continue;
    chosen.insert(chosen.begin(), folder(step));
    if (!options.average) break;
  }
  if (chosen.empty()) {
    // The newest one's own reason says most.
    const auto plan = checkpoint::make_plan(files, folder(steps[0]), options.weights, layout);
    return plan.has_value() ? make_error(ErrorCode::kUnavailable, run + ": changed meanwhile")
                            : plan.error();
  }
  return chosen;
}

/// Absolute folders of the checkpoints that the options mean.
Result<std::vector<std::string>> choose_checkpoints(const FileSystem& files,
                                                    const MergeOptions& options,
                                                    const LayoutOptions& layout) {
  if (options.inputs.empty()) return usage("--input_dir: give a run folder or checkpoints");
  std::vector<std::string> folders;
  for (const std::string& input : options.inputs) {
    EVALCAR_ASSIGN_OR_RETURN(std::string real, files.real_path(input));
    folders.push_back(std::move(real));
  }
  if (folders.size() == 1) {
    const auto report = checkpoint::inspect_layout(files, folders[0], layout);
    const bool named_checkpoint = checkpoint::step_of_name(base_name(folders[0])).has_value();
    EVALCAR_ASSIGN_OR_RETURN(const auto steps, steps_of_run(files, folders[0]));
    // The final save puts weights into the run folder itself, beside the checkpoints: --step and
    // --merge ask for those.
    const bool asks_for_steps = (options.step.has_value() || options.average) && !steps.empty();
    const bool known_but_unread = !report.has_value() && !report.error().retryable;
    if (named_checkpoint || (report.has_value() && !asks_for_steps) ||
        (steps.empty() && known_but_unread)) {
      return folders;
    }
    return choose_from_run(files, folders[0], options, layout);
  }
  if (!options.average) {
    return usage("--input_dir: several checkpoints are given; --merge averages them");
  }
  if (options.step) return usage("--step: names a checkpoint of one run folder, not of several");
  return folders;
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
  return usage("--type " + options.type + ": " + folder + " is of the layout " +
               std::string(checkpoint::layout_name(layout)));
}

/// <run>/_evalcar/merged/<step>/<kind>, the run being the folder around the last checkpoint.
std::string default_output(const std::string& folder, const MergeOptions& options) {
  const auto step = checkpoint::step_of_name(base_name(folder));
  const std::string kind =
      options.average ? "average" : std::string(checkpoint::weights_kind_name(options.weights));
  return join_path(join_path(join_path(parent_path(folder), "_evalcar/merged"),
                             step ? std::to_string(*step) : base_name(folder)),
                   kind);
}

/// Files that stand in for what the checkpoint lacks; a class or hub name is no folder.
Result<std::string> fallback_folder(const FileSystem& files, const MergeOptions& options,
                                    const LayoutOptions& layout, const std::string& folder,
                                    std::ostream& err) {
  if (checkpoint::is_adapter(files, folder)) {
    return checkpoint::adapter_base(files, folder, layout.base_model);
  }
  const bool has_config = files.info_followed(join_path(folder, "config.json")).has_value();
  if (options.model_name_or_class.empty()) return std::string();
  const auto info = files.info_followed(options.model_name_or_class);
  if (info.has_value() && info->type == FileType::kDirectory) return options.model_name_or_class;
  if (!has_config) {
    return usage("--model_name_or_class " + options.model_name_or_class +
                 ": is not a folder, and " + folder + " has no config.json");
  }
  err << "merge: --model_name_or_class is not a folder and not needed: " << folder
      << " has its own configuration\n";
  return std::string();
}

Result<MergeRequest> make_request(const MergeOptions& options, const FileSystem& files,
                                  std::ostream& err) {
  LayoutOptions layout;
  if (!options.state_dict_dirname.empty()) {
    layout.shard_folder = options.state_dict_dirname;
    if (options.weights == WeightsKind::kEma) layout.ema_shard_folder = options.state_dict_dirname;
  }
  layout.weights_only = !options.model_name_or_class.empty();
  if (auto base = checkpoint::find_model(files, {.id = options.model_name_or_class},
                                         checkpoint::hub_places({}))) {
    layout.base_model = *std::move(base);
  }
  MergeRequest request;
  EVALCAR_ASSIGN_OR_RETURN(request.dtype, parse_dtype(options.dtype));
  EVALCAR_ASSIGN_OR_RETURN(request.max_shard_bytes, parse_size(options.max_shard_size));
  if (!is_type(options.type)) {
    return usage("--type " + options.type + ": expected hf, fsdp2, dcp or auto");
  }
  EVALCAR_ASSIGN_OR_RETURN(request.source_dirs, choose_checkpoints(files, options, layout));
  for (const std::string& folder : request.source_dirs) {
    EVALCAR_ASSIGN_OR_RETURN(auto plan,
                             checkpoint::make_plan(files, folder, options.weights, layout));
    EVALCAR_RETURN_IF_ERROR(check_type(options, plan.layout, folder));
    request.plans.push_back(std::move(plan));
  }
  const std::string& last = request.source_dirs.back();
  EVALCAR_ASSIGN_OR_RETURN(request.side_file_fallback_dir,
                           fallback_folder(files, options, layout, last, err));
  request.output_dir =
      options.output_dir.empty() ? default_output(last, options) : options.output_dir;
  request.replace_output = options.output_dir.empty();  // our own folder
  request.threads = options.threads > 0
                        ? options.threads
                        : static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
  return request;
}

void print_report(const MergeRequest& request, const checkpoint::MergeReport& report, bool dry_run,
                  std::ostream& out) {
  for (const std::string& source : request.source_dirs) out << "from  " << source << "\n";
  out << (dry_run ? "would write  " : "wrote  ") << request.output_dir << "\n";
  for (const checkpoint::MergedFile& file : report.files) {
    out << "  " << file.name << "  " << file.tensors.size() << " tensors, " << file.bytes
        << " bytes\n";
  }
  for (const std::string& name : report.side_files) out << "  " << name << "\n";
}

}  // namespace

int run_merge(const MergeOptions& options, FileSystem& files, std::ostream& out,
              std::ostream& err) {
  const auto fail = [&](const Error& error) {
    err << "merge: " << error.message << "\n";
    return exit_code(error);
  };
  auto request = make_request(options, files, err);
  if (!request.has_value()) return fail(request.error());

  const StopSignals signals;
  std::uint64_t total = 0;
  std::uint64_t told = 0;
  request->cancelled = &stop_requested;
  request->on_progress = [&](std::uint64_t done) {
    if (done - told < std::uint64_t{1} << 30U) return;
    told = done;
    err << "merge: " << (done >> 20U) << " of " << (total >> 20U) << " MiB\n";
  };
  auto report = checkpoint::plan_merge(files, *request);
  if (report.has_value() && !options.dry_run) {
    total = report->tensor_bytes;
    report = checkpoint::merge(files, *request);
  }
  if (!report.has_value()) return fail(report.error());
  print_report(*request, *report, options.dry_run, out);
  return kDone;
}

}  // namespace evalcar::cli
