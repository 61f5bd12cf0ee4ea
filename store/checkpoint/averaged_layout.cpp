// Several checkpoints in one folder, for the mean of their weights.
#include "store/checkpoint/adapter_base.h"
#include "store/checkpoint/averaged.h"
#include "store/checkpoint/layout_entry.h"
#include "store/checkpoint/plan_budget.h"

namespace evalcar::checkpoint {
namespace {

bool recognise(const LayoutScene& scene) {
  return scene.folder.has(kMembersFile) && scene.folder.has(kMembersFolder);
}

Result<Plan> plan(const LayoutScene& scene, WeightsKind kind) {
  const std::string& dir = scene.folder.path;
  EVALCAR_ASSIGN_OR_RETURN(const auto names, read_members(scene.files, dir));
  EVALCAR_RETURN_IF_ERROR(check_folder_inside(scene.files, dir, kMembersFolder));
  const std::string members = join_path(dir, kMembersFolder);
  std::vector<Plan> plans;
  PlanBudget budget;  // of all together: each has but one of its own
  for (const std::string& name : names) {
    EVALCAR_RETURN_IF_ERROR(check_folder_inside(scene.files, members, name));
    EVALCAR_ASSIGN_OR_RETURN(
        plans.emplace_back(),
        make_member_plan(scene.files, join_path(members, name), scene.options));
    budget.begin_checkpoint();
    for (const PlanFile& file : plans.back().files) budget.allow_parts(file.identity.size_bytes);
    for (const TensorPlan& tensor : plans.back().tensors) budget.take_whole(tensor);
    if (budget.is_spent()) {
      return make_error(ErrorCode::kCorruption, join_path(members, name) + ": its plan, after " +
                                                    std::to_string(plans.size() - 1) + " others, " +
                                                    PlanBudget::kTooMuch);
    }
  }
  EVALCAR_ASSIGN_OR_RETURN(Plan mean, mean_of(std::move(plans)));
  mean.layout = Layout::kAveraged;
  mean.kind = kind;
  return mean;
}

Result<JudgedKind> judge(const LayoutScene& scene, WeightsKind kind) {
  EVALCAR_ASSIGN_OR_RETURN(Plan made, plan(scene, kind));
  JudgedKind judged;
  // The base model of adapters lies elsewhere: it is no part of the checkpoint.
  const std::string inside = scene.folder.path + "/";
  std::vector<std::string> files = {kMembersFile};
  for (const PlanFile& file : made.files) {
    if (file.path.starts_with(inside)) files.push_back(file.path.substr(inside.size()));
  }
  LayoutOptions options = scene.options;
  options.weights_only |= is_adapter(scene.files, scene.folder.path);  // the base has the rest
  const LayoutScene sides{scene.files, options, scene.folder, {}, {}};
  set_complete(judged.state, sides, std::move(files));
  judged.plan = std::move(made);
  return judged;
}

}  // namespace

const LayoutEntry& averaged_layout() {
  static constexpr LayoutEntry kEntry = {
      .layout = Layout::kAveraged,
      .name = "averaged",
      .looked_for = {},
      .recognise = recognise,
      .is_average = true,
      .judge = judge,
      .plan = plan,
  };
  return kEntry;
}

}  // namespace evalcar::checkpoint
