// LoRA adapters of PEFT: adapter_config.json (written last) beside adapter_model.safetensors or
// .bin. The base model lies elsewhere on this machine.
#include "store/checkpoint/adapter_base.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/layout_entry.h"
#include "store/checkpoint/lora_plan.h"

namespace evalcar::checkpoint {
namespace {

bool recognise(const LayoutScene& scene) {
  return scene.folder.has("adapter_config.json") || !adapter_file(scene.folder).empty();
}

/// The adapter's own files; whether its base is here is told when the plan is made.
Result<JudgedKind> judge(const LayoutScene& scene, WeightsKind) {
  EVALCAR_RETURN_IF_ERROR(read_lora_config(scene.files, scene.folder));
  Plan headers;
  EVALCAR_RETURN_IF_ERROR(add_adapter(scene.files, scene.folder, headers));
  for (const std::string& name : side_files(scene.folder)) {
    if (!name.ends_with("config.json")) continue;
    const std::string path = join_path(scene.folder.path, name);
    EVALCAR_RETURN_IF_ERROR(check_json_object(scene.files, path, kMaxConfigBytes));
  }
  JudgedKind judged;
  judged.state.completeness = Completeness::kComplete;
  judged.state.files = side_files(scene.folder);
  judged.state.files.push_back("adapter_config.json");
  judged.state.files.push_back(adapter_file(scene.folder));
  return judged;
}

Result<Plan> plan(const LayoutScene& scene, WeightsKind) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string base,
                           adapter_base(scene.files, scene.folder.path, scene.options.base_model));
  EVALCAR_ASSIGN_OR_RETURN(Folder folder, open_folder(scene.files, base));
  folder.is_kept_model = true;
  return plan_lora(scene.files, scene.folder, folder);
}

}  // namespace

const LayoutEntry& lora_layout() {
  static constexpr LayoutEntry kEntry = {
      .layout = Layout::kLoraAdapter,
      .name = "lora_adapter",
      .looked_for = "adapter_config.json with adapter_model.safetensors",
      .recognise = recognise,
      .judge = judge,
      .plan = plan,
      .finish = apply_trainer_state,
  };
  return kEntry;
}

}  // namespace evalcar::checkpoint
