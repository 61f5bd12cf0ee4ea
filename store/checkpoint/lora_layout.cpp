// LoRA adapters of PEFT: adapter_config.json (written last) beside adapter_model.safetensors or
// .bin; or, as trainers save it under FSDP, in a DCP. The base model lies elsewhere on this
// machine.
#include "store/checkpoint/adapter_base.h"
#include "store/checkpoint/dcp_folder.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/layout_entry.h"
#include "store/checkpoint/lora_plan.h"

namespace evalcar::checkpoint {
namespace {

bool recognise(const LayoutScene& scene) {
  return scene.folder.has("adapter_config.json") || !adapter_file(scene.folder).empty();
}

/// Where the adapter's tensors are in a DCP; null: in a file of PEFT's.
const Folder* dcp_of(const LayoutScene& scene) {
  if (!adapter_file(scene.folder).empty()) return nullptr;
  if (holds_dcp(scene.shards)) return &scene.shards;
  return holds_dcp(scene.folder) ? &scene.folder : nullptr;
}

/// The files that hold the adapter's tensors; reads their headers.
Result<std::vector<std::string>> tensor_files(const LayoutScene& scene) {
  if (const Folder* const dcp = dcp_of(scene)) {
    EVALCAR_ASSIGN_OR_RETURN(const DcpFolder read, read_dcp_folder(scene.files, *dcp));
    return files_to_read(read, dcp == &scene.folder ? "" : base_name(dcp->path));
  }
  Plan headers;
  EVALCAR_RETURN_IF_ERROR(add_adapter(scene.files, scene.folder, headers));
  return std::vector{adapter_file(scene.folder)};
}

/// The adapter's own files; whether its base is here is told when the plan is made.
Result<JudgedKind> judge(const LayoutScene& scene, WeightsKind) {
  EVALCAR_RETURN_IF_ERROR(read_lora_config(scene.files, scene.folder));
  EVALCAR_ASSIGN_OR_RETURN(const std::vector<std::string> tensors, tensor_files(scene));
  for (const std::string& name : side_files(scene.folder)) {
    if (!name.ends_with("config.json")) continue;
    EVALCAR_ASSIGN_OR_RETURN(const std::string text,
                             read_inside(scene.files, scene.folder, name, kMaxConfigBytes));
    EVALCAR_RETURN_IF_ERROR(check_json_object(text, join_path(scene.folder.path, name)));
  }
  JudgedKind judged;
  judged.state.completeness = Completeness::kComplete;
  judged.state.files = side_files(scene.folder);
  judged.state.files.push_back("adapter_config.json");
  judged.state.files.insert(judged.state.files.end(), tensors.begin(), tensors.end());
  return judged;
}

Result<Plan> plan(const LayoutScene& scene, WeightsKind) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string base,
                           adapter_base(scene.files, scene.folder.path, scene.options.base_model));
  EVALCAR_ASSIGN_OR_RETURN(Folder folder, open_folder(scene.files, base));
  folder.is_kept_model = true;
  return plan_lora(scene.files, scene.folder, dcp_of(scene), folder);
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
