// Several checkpoints in one folder, for the mean of their weights.
#include "store/checkpoint/averaged.h"
#include "store/checkpoint/layout_entry.h"

namespace evalcar::checkpoint {
namespace {

bool recognise(const LayoutScene& scene) {
  return scene.folder.has(kMembersFile) && scene.folder.has(kMembersFolder);
}

Result<Plan> plan(const LayoutScene& scene, WeightsKind kind) {
  const std::string& dir = scene.folder.path;
  EVALCAR_ASSIGN_OR_RETURN(const auto names, read_members(scene.files, dir));
  std::vector<Plan> plans;
  for (const std::string& name : names) {
    const std::string member = join_path(join_path(dir, kMembersFolder), name);
    // A member that is itself such a folder has no regular weights: it ends there.
    EVALCAR_ASSIGN_OR_RETURN(plans.emplace_back(),
                             make_plan(scene.files, member, WeightsKind::kRegular, scene.options));
  }
  EVALCAR_ASSIGN_OR_RETURN(Plan mean, mean_of(std::move(plans)));
  mean.layout = Layout::kAveraged;
  mean.kind = kind;
  return mean;
}

Result<JudgedKind> judge(const LayoutScene& scene, WeightsKind kind) {
  EVALCAR_ASSIGN_OR_RETURN(Plan made, plan(scene, kind));
  JudgedKind judged;
  std::vector<std::string> files = {kMembersFile};
  const std::string inside = scene.folder.path + "/";
  for (const PlanFile& file : made.files) {
    // The base model of adapters lies elsewhere.
    if (file.path.starts_with(inside)) files.push_back(file.path.substr(inside.size()));
  }
  set_complete(judged.state, scene, std::move(files));
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
