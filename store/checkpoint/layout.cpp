#include "store/checkpoint/layout.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "store/checkpoint/adapter_base.h"
#include "store/checkpoint/expert_names.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/layout_entry.h"
#include "store/checkpoint/lora_names.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/top_numbers.h"

namespace evalcar::checkpoint {
namespace {

/// In this order: the first that recognises a folder has it.
std::vector<const LayoutEntry*> layouts() {
  return {
      // Ours: its top holds only what stands beside weights.
      &averaged_layout(),
      // Its shards are what the trainer wrote; a model.safetensors beside them was made from them
      // by somebody, and may be of either kind.
      &lmms_engine_layout(),
      // As transformers does: an adapter_config.json makes a folder an adapter, whatever lies
      // beside.
      &lora_layout(),
      // Before the layouts whose trainers leave whole weights beside their own files.
      &hugging_face_layout(),
      &dcp_layout(),
      &dcp_safetensors_layout(),
      &deepspeed_layout(),
  };
}

/// Kind by kind: what was judged, and the plan if it fell off on the way.
struct Inspection {
  LayoutReport report;
  const LayoutEntry* entry = nullptr;
  std::vector<std::optional<Plan>> plans;  // as report.kinds
};

/// Whether a folder inside a checkpoint is one that trainers make before they write weights.
bool is_early_folder(std::string_view name, const LayoutOptions& options) {
  return name == options.shard_folder || name == options.ema_shard_folder ||
         name.starts_with("optimizer") || name == "extra_state" || name == "dataloader_state" ||
         name == "additional_chat_templates" || name == "sharded";
}

/// Whether the folder holds nothing but what trainers write before weights: configuration and
/// tokenizer, empty folders for shards, and files that are still to get their names.
bool has_just_begun(const LayoutScene& scene) {
  if (!scene.shards.entries.empty() || !scene.ema_shards.entries.empty()) return false;
  const std::vector<std::string> sides = side_files(scene.folder);
  return std::all_of(scene.folder.entries.begin(), scene.folder.entries.end(),
                     [&](const DirectoryEntry& entry) {
                       if (entry.type == FileType::kDirectory)
                         return is_early_folder(entry.name, scene.options);
                       if (entry.type != FileType::kRegular) return false;
                       return entry.name.starts_with('.') || entry.name == "README.md" ||
                              std::find(sides.begin(), sides.end(), entry.name) != sides.end();
                     });
}

/// Where PEFT wrote adapters of names of their own, as a sentence's end, or empty.
std::string named_adapters(const LayoutScene& scene) {
  constexpr std::size_t kMaxNamed = 4;
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : scene.folder.entries) {
    if (entry.type != FileType::kDirectory || names.size() == kMaxNamed) continue;
    const std::string inner = join_path(scene.folder.path, entry.name);
    if (!scene.files.info_followed(join_path(inner, "adapter_config.json")).has_value()) continue;
    names.push_back(quote_name(entry.name));
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "" : "; adapters lie in its folders (" + text + "): name one of them";
}

Error nothing_found(const LayoutScene& scene) {
  const std::string& dir = scene.folder.path;
  if (scene.options.shard_folders_only) {
    const bool same = scene.options.shard_folder == scene.options.ema_shard_folder;
    return make_error(ErrorCode::kUnavailable,
                      dir + ": holds no shards in " + scene.options.shard_folder +
                          (same ? "" : " or " + scene.options.ema_shard_folder));
  }
  if (has_just_begun(scene)) {
    return make_error(ErrorCode::kUnavailable, dir + ": holds no weights yet");
  }
  std::string looked_for;
  for (const LayoutEntry* entry : layouts()) {
    if (entry->looked_for.empty()) continue;
    looked_for += (looked_for.empty() ? "" : ", ") + std::string(entry->looked_for);
  }
  Error error = make_error(ErrorCode::kUnsupported, dir + ": holds no checkpoint (looked for " +
                                                        looked_for + ")" + named_adapters(scene));
  error.retryable = true;  // a trainer makes the folder first
  return error;
}

Result<LayoutScene> look_at(const FileSystem& files, const std::string& dir,
                            const LayoutOptions& options) {
  EVALCAR_ASSIGN_OR_RETURN(Folder folder, open_folder(files, dir));
  EVALCAR_ASSIGN_OR_RETURN(Folder shards, sub_folder(files, folder, options.shard_folder));
  EVALCAR_ASSIGN_OR_RETURN(Folder ema_shards, sub_folder(files, folder, options.ema_shard_folder));
  return LayoutScene{files, options, std::move(folder), std::move(shards), std::move(ema_shards)};
}

JudgedKind judge(const LayoutEntry& entry, const LayoutScene& scene, WeightsKind kind) {
  auto result = entry.judge(scene, kind);
  JudgedKind judged;
  if (result.has_value()) {
    judged = std::move(result).value();
  } else {
    set_incomplete(judged.state, result.error());
  }
  judged.state.kind = kind;
  return judged;
}

Result<Inspection> inspect_scene(const LayoutScene& scene, bool averages = true) {
  const std::string& dir = scene.folder.path;
  Inspection seen;
  for (const LayoutEntry* entry : layouts()) {
    if (entry->is_average && !averages) continue;
    if (scene.options.shard_folders_only && !entry->in_shard_folders) continue;
    if (!entry->recognise(scene)) continue;
    seen.entry = entry;
    break;
  }
  if (seen.entry == nullptr) return nothing_found(scene);
  seen.report.layout = seen.entry->layout;
  seen.report.step = step_of_name(base_name(dir));
  for (const WeightsKind kind : {WeightsKind::kRegular, WeightsKind::kEma, WeightsKind::kAverage}) {
    if (kind == WeightsKind::kEma && !seen.entry->has_ema) continue;
    if ((kind == WeightsKind::kAverage) != seen.entry->is_average) continue;
    JudgedKind judged = judge(*seen.entry, scene, kind);
    seen.report.kinds.push_back(std::move(judged.state));
    seen.plans.push_back(std::move(judged.plan));
  }
  if (seen.entry->finish != nullptr) seen.entry->finish(scene, seen.report);
  return seen;
}

ErrorCode error_code_of(const KindState& state) {
  if (state.unsupported) return ErrorCode::kUnsupported;
  return state.damaged ? ErrorCode::kCorruption : ErrorCode::kUnavailable;
}

/// Only a model's configuration says what its experts are called.
Status name_experts(const LayoutScene& scene, Plan& plan) {
  if (fused_experts_of(plan).empty()) return {};
  EVALCAR_ASSIGN_OR_RETURN(const auto config, config_of_model(scene));
  if (!config) return {};
  const Status named = take_expert_names(plan, config->text, config->path);
  return named.has_value() ? named : with_context(named.error(), scene.folder.path);
}

Result<Plan> plan_of(const LayoutScene& scene, Inspection seen, WeightsKind kind) {
  for (std::size_t i = 0; i < seen.report.kinds.size(); ++i) {
    const KindState& state = seen.report.kinds[i];
    if (state.kind != kind) continue;
    if (state.completeness != Completeness::kComplete) {
      return make_error(error_code_of(state), state.reason);
    }
    auto plan =
        seen.plans[i] ? Result<Plan>(*std::move(seen.plans[i])) : seen.entry->plan(scene, kind);
    if (!plan.has_value()) return plan;
    EVALCAR_RETURN_IF_ERROR(check_no_adapter(plan->tensors, scene.folder.path));
    EVALCAR_RETURN_IF_ERROR(name_experts(scene, *plan));
    return plan;
  }
  return make_error(ErrorCode::kUnavailable,
                    scene.folder.path + ": has no " + std::string(weights_kind_name(kind)) +
                        " weights (layout " + std::string(layout_name(seen.report.layout)) + ")");
}

}  // namespace

Result<Folder> sub_folder(const FileSystem& files, const Folder& folder, const std::string& name) {
  if (!folder.has(name)) return Folder{};
  EVALCAR_RETURN_IF_ERROR(check_folder_inside(files, folder.path, name));
  auto opened = open_folder(files, join_path(folder.path, name));
  return opened.has_value() ? std::move(opened).value() : Folder{};
}

Result<std::optional<ConfigText>> config_of_model(const LayoutScene& scene) {
  const std::string name = "config.json";
  Folder base;
  if (!scene.folder.has(name)) {
    std::string dir = scene.options.base_model;
    if (scene.folder.has("adapter_config.json")) {
      EVALCAR_ASSIGN_OR_RETURN(dir, adapter_base(scene.files, scene.folder.path, dir));
    }
    if (dir.empty()) return std::optional<ConfigText>();
    EVALCAR_ASSIGN_OR_RETURN(base, open_folder(scene.files, dir));
    if (!base.has(name)) return std::optional<ConfigText>();
    base.is_kept_model = true;
  }
  const Folder& folder = base.path.empty() ? scene.folder : base;
  EVALCAR_ASSIGN_OR_RETURN(std::string text,
                           read_inside(scene.files, folder, name, kMaxConfigBytes));
  replace_non_finite(text);
  std::string path = join_path(folder.path, name);
  EVALCAR_RETURN_IF_ERROR(check_json_object(text, path));
  return std::optional(ConfigText{std::move(path), std::move(text)});
}

bool any_entry(const Folder& folder, bool (*predicate)(std::string_view)) {
  return std::any_of(folder.entries.begin(), folder.entries.end(),
                     [&](const DirectoryEntry& entry) { return predicate(entry.name); });
}

void set_incomplete(KindState& state, const Error& error) {
  state.completeness = Completeness::kIncomplete;
  state.reason = error.message;
  state.unsupported = error.code == ErrorCode::kUnsupported;
  state.damaged = error.code == ErrorCode::kCorruption || state.unsupported;
  state.files.clear();
}

void set_complete(KindState& state, const LayoutScene& scene, std::vector<std::string> weights) {
  if (Status sides = check_side_files(scene.files, scene.folder, scene.options);
      !sides.has_value()) {
    set_incomplete(state, sides.error());
    return;
  }
  state.completeness = Completeness::kComplete;
  state.files = std::move(weights);
  for (std::string& side : side_files(scene.folder)) state.files.push_back(std::move(side));
}

namespace {

/// Of a state that is too large to be read whole: only that its last brace was written. No numbers.
Result<TopNumbers> check_end(const ReadableFile& file, const FileInfo& info,
                             const std::string& path) {
  std::string end(64, '\0');
  EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(info.size_bytes - end.size(),
                                               std::as_writable_bytes(std::span<char>(end)), path));
  const std::size_t last = end.find_last_not_of(" \t\r\n");
  if (last != std::string::npos && end[last] == '}') return TopNumbers();
  return make_error(ErrorCode::kUnavailable,
                    path + ": ends before its JSON does (still being written, or torn)");
}

}  // namespace

void apply_trainer_state(const LayoutScene& scene, LayoutReport& report) {
  if (!scene.folder.has("trainer_state.json")) return;
  const std::string path = join_path(scene.folder.path, "trainer_state.json");
  const auto read = [&]() -> Result<TopNumbers> {
    EVALCAR_ASSIGN_OR_RETURN(const auto file,
                             open_inside(scene.files, scene.folder.path, "trainer_state.json"));
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, file->info());
    if (info.size_bytes > kMaxTrainerStateBytes) return check_end(*file, info, path);
    return top_level_numbers(*file, path, {"global_step"}, kMaxTrainerStateBytes);
  };
  const auto numbers = read();
  if (!numbers.has_value()) {
    for (KindState& state : report.kinds) {
      if (state.completeness == Completeness::kComplete) set_incomplete(state, numbers.error());
    }
  } else if (const auto step = whole_number(*numbers, "global_step"); step.has_value()) {
    report.step = step;
  }
}

std::string_view layout_name(Layout layout) {
  for (const LayoutEntry* entry : layouts()) {
    if (entry->layout == layout) return entry->name;
  }
  return {};
}

std::string_view weights_kind_name(WeightsKind kind) {
  switch (kind) {
    case WeightsKind::kRegular:
      return "regular";
    case WeightsKind::kEma:
      return "ema";
    case WeightsKind::kAverage:
      break;
  }
  return "average";
}

std::optional<WeightsKind> weights_kind_from_name(std::string_view name) {
  if (name == "regular") return WeightsKind::kRegular;
  if (name == "ema") return WeightsKind::kEma;
  if (name == "average") return WeightsKind::kAverage;
  return std::nullopt;
}

Result<LayoutReport> inspect_layout(const FileSystem& files, const std::string& dir,
                                    const LayoutOptions& options) {
  EVALCAR_ASSIGN_OR_RETURN(const LayoutScene scene, look_at(files, dir, options));
  EVALCAR_ASSIGN_OR_RETURN(Inspection seen, inspect_scene(scene));
  return std::move(seen.report);
}

Result<Plan> make_plan(const FileSystem& files, const std::string& dir, WeightsKind kind,
                       const LayoutOptions& options) {
  EVALCAR_ASSIGN_OR_RETURN(const LayoutScene scene, look_at(files, dir, options));
  EVALCAR_ASSIGN_OR_RETURN(Inspection seen, inspect_scene(scene));
  return plan_of(scene, std::move(seen), kind);
}

Result<Plan> make_member_plan(const FileSystem& files, const std::string& dir,
                              const LayoutOptions& options) {
  EVALCAR_ASSIGN_OR_RETURN(const LayoutScene scene, look_at(files, dir, options));
  EVALCAR_ASSIGN_OR_RETURN(Inspection seen, inspect_scene(scene, false));
  return plan_of(scene, std::move(seen), WeightsKind::kRegular);
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
