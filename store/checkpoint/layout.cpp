#include "store/checkpoint/layout.h"

#include <algorithm>
#include <charconv>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

bool is_lmms_shard(std::string_view name) {
  return name.starts_with("model_world_size_") && name.ends_with(".pt");
}

bool any_entry(const Folder& folder, bool (*predicate)(std::string_view)) {
  return std::any_of(folder.entries.begin(), folder.entries.end(),
                     [&](const DirectoryEntry& entry) { return predicate(entry.name); });
}

/// Entries of a sub-folder; empty if it is not there.
Folder sub_folder(const FileSystem& files, const Folder& folder, const std::string& name) {
  if (!folder.has(name)) return {};
  auto opened = open_folder(files, join_path(folder.path, name));
  return opened.has_value() ? std::move(opened).value() : Folder{};
}

bool is_dcp(const Folder& folder) {
  return folder.has(".metadata") ||
         any_entry(folder, [](std::string_view name) { return name.ends_with(".distcp"); });
}

/// The name of a layout that is known, but not read by this version.
std::optional<std::string> unread_layout(const Folder& folder, const Folder& shards,
                                         const Folder& ema_shards) {
  if (folder.has("adapter_config.json") || folder.has("adapter_model.safetensors")) {
    return "a LoRA adapter (adapter_config.json)";
  }
  if (is_dcp(folder) || is_dcp(shards) || is_dcp(ema_shards)) {
    return "a torch.distributed.checkpoint (DCP) folder (.metadata, *.distcp)";
  }
  if (any_entry(folder, [](std::string_view name) { return name.starts_with("global_step"); })) {
    return "a DeepSpeed ZeRO checkpoint (global_step*)";
  }
  return std::nullopt;
}

void set_incomplete(KindState& state, const Error& error) {
  state.completeness = Completeness::kIncomplete;
  state.reason = error.message;
  state.damaged = error.code == ErrorCode::kCorruption || error.code == ErrorCode::kUnsupported;
}

/// Judging reads all headers, which is what a plan is made from: it is kept in `made` if wanted.
KindState judge_hugging_face(const FileSystem& files, const Folder& folder,
                             const LayoutOptions& options, std::optional<Plan>* made) {
  KindState state;
  auto plan = plan_hugging_face(files, folder);
  if (!plan.has_value()) {
    set_incomplete(state, plan.error());
    return state;
  }
  if (Status sides = check_side_files(files, folder, options); !sides.has_value()) {
    set_incomplete(state, sides.error());
    return state;
  }
  state.completeness = Completeness::kComplete;
  for (const PlanFile& file : plan->files) state.files.push_back(base_name(file.path));
  if (const auto entry = hugging_face_entry(folder); entry && entry->is_index) {
    state.files.push_back(entry->name);
  }
  for (std::string& name : side_files(folder)) state.files.push_back(std::move(name));
  if (made != nullptr) *made = std::move(plan).value();
  return state;
}

KindState judge_lmms(const FileSystem& files, const Folder& folder, WeightsKind kind,
                     const LayoutOptions& options) {
  KindState state;
  state.kind = kind;
  const std::string& name =
      kind == WeightsKind::kEma ? options.ema_shard_folder : options.shard_folder;
  if (!folder.has(name)) {
    state.reason = join_path(folder.path, name) + ": is not there";
    return state;
  }
  const ShardSet shards = judge_shards(files, join_path(folder.path, name), "model");
  state.world_size = shards.world_size;
  if (shards.world_size == 0 && shards.status.has_value()) {
    state.completeness = Completeness::kPending;
    state.reason = join_path(folder.path, name) + ": holds no shard yet";
    return state;
  }
  if (!shards.status.has_value()) {
    set_incomplete(state, shards.status.error());
    return state;
  }
  if (Status sides = check_side_files(files, folder, options); !sides.has_value()) {
    set_incomplete(state, sides.error());
    return state;
  }
  state.completeness = Completeness::kComplete;
  for (const std::string& shard : shards.names) state.files.push_back(join_path(name, shard));
  for (std::string& side : side_files(folder)) state.files.push_back(std::move(side));
  return state;
}

/// trainer_state.json is the Hugging Face Trainer's last file: if it is there it has to be whole.
Status read_trainer_state(const FileSystem& files, const Folder& folder, LayoutReport& report) {
  if (!folder.has("trainer_state.json")) return {};
  const std::string path = join_path(folder.path, "trainer_state.json");
  EVALCAR_ASSIGN_OR_RETURN(const auto file, open_inside(files, folder.path, "trainer_state.json"));
  EVALCAR_ASSIGN_OR_RETURN(const auto step,
                           top_level_number(files, path, "global_step", kMaxTrainerStateBytes));
  if (step && *step <= static_cast<std::uint64_t>(INT64_MAX)) {
    report.step = static_cast<std::int64_t>(*step);
  }
  return {};
}

/// inspect_layout; the plan of a complete Hugging Face checkpoint falls off on the way.
Result<LayoutReport> inspect_folder(const FileSystem& files, const std::string& dir,
                                    const LayoutOptions& options, std::optional<Plan>* made) {
  EVALCAR_ASSIGN_OR_RETURN(const Folder folder, open_folder(files, dir));
  const Folder shards = sub_folder(files, folder, options.shard_folder);
  const Folder ema_shards = sub_folder(files, folder, options.ema_shard_folder);
  LayoutReport report;
  report.step = step_of_name(base_name(dir));

  // lmms-engine first: its shards are what the trainer wrote; a model.safetensors beside them was
  // made from them by somebody, and may be of either kind.
  if (any_entry(shards, is_lmms_shard) || any_entry(ema_shards, is_lmms_shard)) {
    report.layout = Layout::kLmmsEngineFsdp2;
    report.kinds.push_back(judge_lmms(files, folder, WeightsKind::kRegular, options));
    report.kinds.push_back(judge_lmms(files, folder, WeightsKind::kEma, options));
    const int world_size = std::max(report.kinds[0].world_size, report.kinds[1].world_size);
    if (folder.has("dataloader_state")) {
      const ShardSet set =
          judge_shards(files, join_path(dir, "dataloader_state"), "dataloader_state");
      report.writer_done = set.status.has_value() && set.world_size == world_size;
    }
    return report;
  }
  if (const auto entry = hugging_face_entry(folder);
      entry && (folder.has(entry->name) || !is_dcp(folder))) {
    report.layout = Layout::kHuggingFace;
    KindState state = judge_hugging_face(files, folder, options, made);
    if (Status trainer = read_trainer_state(files, folder, report);
        !trainer.has_value() && state.completeness == Completeness::kComplete) {
      set_incomplete(state, trainer.error());
      state.files.clear();
    }
    report.kinds.push_back(std::move(state));
    return report;
  }
  if (const auto name = unread_layout(folder, shards, ema_shards)) {
    return make_error(ErrorCode::kUnsupported,
                      dir + ": is " + *name + ", a layout that this version does not read");
  }
  Error error = make_error(ErrorCode::kUnsupported,
                           dir +
                               ": holds no checkpoint (looked for model.safetensors, "
                               "pytorch_model.bin, an index of either, "
                               "pytorch_model_fsdp.bin, " +
                               options.shard_folder + "/model_world_size_W_rank_R.pt)");
  error.retryable = true;  // a trainer makes the folder first
  return error;
}

}  // namespace

std::string_view layout_name(Layout layout) {
  return layout == Layout::kHuggingFace ? "hugging_face" : "lmms_engine_fsdp2";
}

std::string_view weights_kind_name(WeightsKind kind) {
  return kind == WeightsKind::kRegular ? "regular" : "ema";
}

std::optional<WeightsKind> weights_kind_from_name(std::string_view name) {
  if (name == "regular") return WeightsKind::kRegular;
  if (name == "ema") return WeightsKind::kEma;
  return std::nullopt;
}

Result<LayoutReport> inspect_layout(const FileSystem& files, const std::string& dir,
                                    const LayoutOptions& options) {
  return inspect_folder(files, dir, options, nullptr);
}

Result<Plan> make_plan(const FileSystem& files, const std::string& dir, WeightsKind kind,
                       const LayoutOptions& options) {
  std::optional<Plan> made;
  EVALCAR_ASSIGN_OR_RETURN(const LayoutReport report, inspect_folder(files, dir, options, &made));
  for (const KindState& state : report.kinds) {
    if (state.kind != kind) continue;
    if (state.completeness != Completeness::kComplete) {
      return make_error(state.damaged ? ErrorCode::kCorruption : ErrorCode::kUnavailable,
                        state.reason);
    }
    if (made) return std::move(*made);
    return plan_fsdp2(
        files,
        join_path(dir, kind == WeightsKind::kEma ? options.ema_shard_folder : options.shard_folder),
        kind);
  }
  return make_error(ErrorCode::kUnavailable,
                    dir + ": has no " + std::string(weights_kind_name(kind)) + " weights (layout " +
                        std::string(layout_name(report.layout)) + ")");
}

std::optional<std::int64_t> step_of_name(std::string_view folder_name, std::string_view pattern) {
  constexpr std::string_view kPlace = "{step}";
  const std::size_t place = pattern.find(kPlace);
  if (place == std::string_view::npos) return std::nullopt;
  const std::string_view prefix = pattern.substr(0, place);
  const std::string_view suffix = pattern.substr(place + kPlace.size());
  if (folder_name.size() <= prefix.size() + suffix.size() || !folder_name.starts_with(prefix) ||
      !folder_name.ends_with(suffix)) {
    return std::nullopt;
  }
  const std::string_view digits =
      folder_name.substr(prefix.size(), folder_name.size() - prefix.size() - suffix.size());
  if (digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  if (digits.size() > 1 && digits[0] == '0') return std::nullopt;
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return step;
}

}  // namespace evalcar::checkpoint
