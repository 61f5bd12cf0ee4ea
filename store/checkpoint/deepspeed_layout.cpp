// DeepSpeed's ZeRO partitions: `latest` names the folder that holds the state files of all ranks.
#include "store/checkpoint/deepspeed_plan.h"
#include "store/checkpoint/layout_entry.h"

namespace evalcar::checkpoint {
namespace {

bool recognise(const LayoutScene& scene) { return looks_like_deepspeed(scene.folder); }

Result<Plan> plan(const LayoutScene& scene, WeightsKind) {
  EVALCAR_ASSIGN_OR_RETURN(const DeepspeedFiles found, list_deepspeed(scene.files, scene.folder));
  return plan_deepspeed(scene.files, scene.folder, found);
}

/// Whether all ranks have written is told by the number of partitions in the files, so judging
/// reads what a plan is made from.
Result<JudgedKind> judge(const LayoutScene& scene, WeightsKind) {
  EVALCAR_ASSIGN_OR_RETURN(DeepspeedFiles found, list_deepspeed(scene.files, scene.folder));
  EVALCAR_ASSIGN_OR_RETURN(Plan made, plan_deepspeed(scene.files, scene.folder, found));
  JudgedKind judged;
  judged.state.world_size = made.world_size;
  std::vector<std::string> weights = std::move(found.optimizers);
  weights.insert(weights.end(), found.rank_models.begin(), found.rank_models.end());
  if (!found.model.empty()) weights.push_back(found.model);
  if (!found.folder.empty()) weights.push_back("latest");
  set_complete(judged.state, scene, std::move(weights));
  judged.plan = std::move(made);
  return judged;
}

}  // namespace

const LayoutEntry& deepspeed_layout() {
  static constexpr LayoutEntry kEntry = {
      .layout = Layout::kDeepspeedZero,
      .name = "deepspeed_zero",
      .looked_for = "latest with global_stepN/*_optim_states.pt",
      .recognise = recognise,
      .judge = judge,
      .plan = plan,
      .finish = apply_trainer_state,
  };
  return kEntry;
}

}  // namespace evalcar::checkpoint
