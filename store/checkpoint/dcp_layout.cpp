// torch.distributed.checkpoint (DCP) folders. accelerate and the Hugging Face Trainer put one into
// `pytorch_model_fsdp_0/` of a checkpoint (FSDP, SHARDED_STATE_DICT); for everybody else,
// torchtitan among them, the checkpoint is one itself. Neither has a configuration or a tokenizer.
#include "store/checkpoint/dcp_folder.h"
#include "store/checkpoint/layout_entry.h"
#include "store/checkpoint/lora_names.h"
#include "store/checkpoint/torchtitan_names.h"

namespace evalcar::checkpoint {
namespace {

const std::string kConfig = "config.json";

/// Whether the checkpoint is a DCP itself.
bool is_dcp_itself(const LayoutScene& scene) {
  return !scene.options.shard_folders_only && holds_dcp(scene.folder);
}

bool recognise(const LayoutScene& scene) {
  return is_dcp_itself(scene) || holds_dcp(scene.shards) || holds_dcp(scene.ema_shards);
}

/// Where a kind is; nothing where the checkpoint has no place for it.
const Folder* folder_of(const LayoutScene& scene, WeightsKind kind) {
  if (kind == WeightsKind::kEma) {
    return scene.ema_shards.path.empty() ? nullptr : &scene.ema_shards;
  }
  if (holds_dcp(scene.shards)) return &scene.shards;
  return is_dcp_itself(scene) ? &scene.folder : nullptr;
}

Result<JudgedKind> judge(const LayoutScene& scene, WeightsKind kind) {
  JudgedKind judged;
  const Folder* const folder = folder_of(scene, kind);
  if (folder == nullptr) {
    const std::string& name =
        kind == WeightsKind::kEma ? scene.options.ema_shard_folder : scene.options.shard_folder;
    judged.state.reason = join_path(scene.folder.path, name) + ": is not there";
    return judged;
  }
  if (folder->entries.empty()) {
    judged.state.completeness = Completeness::kPending;
    judged.state.reason = folder->path + ": holds no file yet";
    return judged;
  }
  EVALCAR_ASSIGN_OR_RETURN(const DcpFolder read, read_dcp_folder(scene.files, *folder));
  judged.state.world_size = read.world_size;
  EVALCAR_RETURN_IF_ERROR(check_no_adapter(read.metadata.weights, folder->path));
  set_complete(judged.state, scene,
               files_to_read(read, folder == &scene.folder ? "" : base_name(folder->path)));
  if (!scene.folder.has(kConfig) && judged.state.completeness != Completeness::kComplete) {
    judged.state.reason +=
        "; trainers write none beside a DCP: set evaluate.base_model (or give "
        "--model_name_or_class) to the folder of the model that training started from";
  }
  return judged;
}

Result<Plan> plan(const LayoutScene& scene, WeightsKind kind) {
  EVALCAR_ASSIGN_OR_RETURN(Plan made, plan_dcp(scene.files, *folder_of(scene, kind), kind));
  if (!has_torchtitan_names(made)) return made;
  EVALCAR_ASSIGN_OR_RETURN(const auto config, config_of_model(scene));
  if (!config) return made;
  if (Status named = take_torchtitan_names(made, config->text, config->path); !named.has_value()) {
    return with_context(named.error(), scene.folder.path);
  }
  return made;
}

void finish(const LayoutScene& scene, LayoutReport& report) {
  if (!report.step) report.step = step_of_name(base_name(scene.folder.path), "step-{step}");
  apply_trainer_state(scene, report);
}

}  // namespace

const LayoutEntry& dcp_layout() {
  static constexpr LayoutEntry kEntry = {
      .layout = Layout::kDcp,
      .name = "dcp",
      .looked_for = ".metadata and *.distcp there or in the checkpoint itself",
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
