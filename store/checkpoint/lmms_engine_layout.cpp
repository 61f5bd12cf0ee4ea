// lmms-engine's fsdp2_trainer: W files per kind, one folder for each kind.
#include <algorithm>

#include "store/checkpoint/layout_entry.h"

namespace evalcar::checkpoint {
namespace {

bool is_shard(std::string_view name) {
  return name.starts_with("model_world_size_") && name.ends_with(".pt");
}

bool recognise(const LayoutScene& scene) {
  return any_entry(scene.shards, is_shard) || any_entry(scene.ema_shards, is_shard);
}

const std::string& folder_name(const LayoutScene& scene, WeightsKind kind) {
  return kind == WeightsKind::kEma ? scene.options.ema_shard_folder : scene.options.shard_folder;
}

Result<JudgedKind> judge(const LayoutScene& scene, WeightsKind kind) {
  JudgedKind judged;
  KindState& state = judged.state;
  const std::string& name = folder_name(scene, kind);
  const std::string path = join_path(scene.folder.path, name);
  if (!scene.folder.has(name)) {
    state.reason = path + ": is not there";
    return judged;
  }
  const ShardSet shards = judge_shards(scene.files, path, "model");
  state.world_size = shards.world_size;
  if (shards.world_size == 0 && shards.status.has_value()) {
    state.completeness = Completeness::kPending;
    state.reason = path + ": holds no shard yet";
    return judged;
  }
  // Set, not returned: the number of ranks is known, and part of the report.
  if (!shards.status.has_value()) {
    set_incomplete(state, shards.status.error());
    return judged;
  }
  // Rank 0 writes it after its weights, so a base model stands in for it only where it may be
  // absent for good.
  if (!scene.folder.has("config.json") && !scene.options.weights_only) {
    set_incomplete(state, make_error(ErrorCode::kUnavailable,
                                     join_path(scene.folder.path, "config.json") + ": is missing"));
    return judged;
  }
  std::vector<std::string> weights;
  for (const std::string& shard : shards.names) weights.push_back(join_path(name, shard));
  set_complete(state, scene, std::move(weights));
  return judged;
}

Result<Plan> plan(const LayoutScene& scene, WeightsKind kind) {
  return plan_fsdp2(scene.files, join_path(scene.folder.path, folder_name(scene, kind)), kind);
}

void finish(const LayoutScene& scene, LayoutReport& report) {
  if (!scene.folder.has("dataloader_state")) return;
  if (!check_folder_inside(scene.files, scene.folder.path, "dataloader_state").has_value()) return;
  int world_size = 0;
  for (const KindState& state : report.kinds) world_size = std::max(world_size, state.world_size);
  const ShardSet set = judge_shards(scene.files, join_path(scene.folder.path, "dataloader_state"),
                                    "dataloader_state");
  report.writer_done = set.status.has_value() && set.world_size == world_size;
}

}  // namespace

const LayoutEntry& lmms_engine_layout() {
  static constexpr LayoutEntry kEntry = {
      .layout = Layout::kLmmsEngineFsdp2,
      .name = "lmms_engine_fsdp2",
      .looked_for = "pytorch_model_fsdp_0/model_world_size_W_rank_R.pt",
      .recognise = recognise,
      .in_shard_folders = true,
      .has_ema = true,
      .judge = judge,
      .plan = plan,
      .finish = finish,
  };
  return kEntry;
}

}  // namespace evalcar::checkpoint
