// One layout is one entry: how it is recognised, how a kind of weights in it is judged, and how its
// plan is made. layout.cpp asks the entries in order and knows none of them; each has a file of its
// own, `<name>_layout.cpp`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/layout.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// A checkpoint's folder and the two places below it where trainers put shards, listed once.
struct LayoutScene {
  const FileSystem& files;
  const LayoutOptions& options;
  Folder folder;
  Folder shards;      ///< options.shard_folder; without path and entries if it is not there
  Folder ema_shards;  ///< options.ema_shard_folder; likewise
};

/// A judged kind; `state.kind` and `state.files` (of kComplete only) are set by the judge.
struct JudgedKind {
  KindState state;
  std::optional<Plan> plan;  ///< if judging made the whole plan on its way, and it is complete
};

struct LayoutEntry {
  Layout layout;
  std::string_view name;        ///< layout_name()
  std::string_view looked_for;  ///< its files, for the error where nothing is recognised
  /// Whether the folder is of this layout, by names and structure alone; no file is read.
  bool (*recognise)(const LayoutScene&) = nullptr;
  bool in_shard_folders = false;  ///< it is (also) read from the scene's shard folders
  bool has_ema = false;     ///< it has a place for EMA weights: the judge is asked for both kinds
  bool is_average = false;  ///< it holds an average, and nothing else
  /// An error: the kind is incomplete for its reason.
  Result<JudgedKind> (*judge)(const LayoutScene&, WeightsKind) = nullptr;
  /// Of a kind that was judged complete without making the plan.
  Result<Plan> (*plan)(const LayoutScene&, WeightsKind) = nullptr;
  /// Sets what else a report has (step, writer_done) and may downgrade its kinds; may be absent.
  void (*finish)(const LayoutScene&, LayoutReport&) = nullptr;
};

// In the files of their names.
const LayoutEntry& hugging_face_layout();
const LayoutEntry& lmms_engine_layout();
const LayoutEntry& dcp_layout();
const LayoutEntry& dcp_safetensors_layout();
const LayoutEntry& lora_layout();
const LayoutEntry& deepspeed_layout();
const LayoutEntry& averaged_layout();

/// A folder inside the checkpoint; without path and entries if it is not there. A link leads only
/// to a folder inside the checkpoint: kCorruption else.
Result<Folder> sub_folder(const FileSystem& files, const Folder& folder, const std::string& name);

struct ConfigText {
  std::string path;
  std::string text;  ///< of config.json, with numbers that JSON has (replace_non_finite)
};

/// The model's configuration: that in the checkpoint, else that of the model that training started
/// from, or of an adapter's base; absent where neither has one.
Result<std::optional<ConfigText>> config_of_model(const LayoutScene& scene);

/// make_plan() of a member of an average: of regular weights, and never an average itself, which
/// would go as deep as its writer likes.
Result<Plan> make_member_plan(const FileSystem& files, const std::string& dir,
                              const LayoutOptions& options);

bool any_entry(const Folder& folder, bool (*predicate)(std::string_view));

/// kIncomplete for the error's reason, damaged if waiting cannot help; forgets the files.
void set_incomplete(KindState& state, const Error& error);

/// kComplete with `weights` (relative to the checkpoint) and the side files, or kIncomplete where a
/// side file is missing or broken.
void set_complete(KindState& state, const LayoutScene& scene, std::vector<std::string> weights);

/// For `finish`: trainer_state.json is the Hugging Face Trainer's last file. If it is there it has
/// to be whole, else complete kinds become incomplete; it tells the step.
void apply_trainer_state(const LayoutScene& scene, LayoutReport& report);

/// dcp_safetensors_layout.cpp: whether the folder holds shards of that layout.
bool holds_dcp_safetensors(const LayoutScene& scene);

}  // namespace evalcar::checkpoint
