// The layout of `save_pretrained`: weights, configuration and tokenizer in one folder.
#include "store/checkpoint/dcp_folder.h"
#include "store/checkpoint/layout_entry.h"

namespace evalcar::checkpoint {
namespace {

bool recognise(const LayoutScene& scene) {
  const auto entry = hugging_face_entry(scene.folder);
  if (!entry) return false;
  // No trainer writes whole weights beside a DCP in a folder of its own: somebody has merged them
  // into the checkpoint, and they may be of either kind.
  if (holds_dcp(scene.shards) || holds_dcp(scene.ema_shards)) return false;
  // Whole weights may be made from the shards beside them: they count as soon as they are there.
  return scene.folder.has(entry->name) ||
         (!holds_dcp(scene.folder) && !holds_dcp_safetensors(scene));
}

/// Judging reads all headers, which is what a plan is made from.
Result<JudgedKind> judge(const LayoutScene& scene, WeightsKind) {
  EVALCAR_ASSIGN_OR_RETURN(Plan plan, plan_hugging_face(scene.files, scene.folder));
  JudgedKind judged;
  std::vector<std::string> weights;
  for (const PlanFile& file : plan.files) weights.push_back(base_name(file.path));
  if (const auto entry = hugging_face_entry(scene.folder); entry && entry->is_index) {
    weights.push_back(entry->name);
  }
  set_complete(judged.state, scene, std::move(weights));
  judged.plan = std::move(plan);
  return judged;
}

Result<Plan> plan(const LayoutScene& scene, WeightsKind) {
  return plan_hugging_face(scene.files, scene.folder);
}

}  // namespace

const LayoutEntry& hugging_face_layout() {
  static constexpr LayoutEntry kEntry = {
      .layout = Layout::kHuggingFace,
      .name = "hugging_face",
      .looked_for =
          "model.safetensors, pytorch_model.bin, an index of either, pytorch_model_fsdp.bin",
      .recognise = recognise,
      .judge = judge,
      .plan = plan,
      .finish = apply_trainer_state,
  };
  return kEntry;
}

}  // namespace evalcar::checkpoint
