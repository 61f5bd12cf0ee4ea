#include "store/checkpoint/lora_plan.h"

#include "store/checkpoint/dcp_folder.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/lora_overlay.h"
#include "store/checkpoint/lora_ties.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kConfigName = "adapter_config.json";

/// Adds an adapter's tensors out of a DCP to a plan that holds none yet, but files.
Status add_dcp(const FileSystem& files, const Folder& folder, Plan& plan) {
  EVALCAR_ASSIGN_OR_RETURN(Plan added, plan_dcp(files, folder, WeightsKind::kRegular));
  const std::size_t before = plan.files.size();
  for (PlanFile& file : added.files) plan.files.push_back(std::move(file));
  for (TensorPlan& tensor : added.tensors) {
    for (Piece& piece : tensor.pieces) piece.file += before;
    plan.tensors.push_back(std::move(tensor));
  }
  for (auto& record : added.records) {
    record.file += before;
    plan.records.push_back(record);
  }
  plan.world_size = added.world_size;
  plan.extra_states = std::move(added.extra_states);
  plan.left_out = std::move(added.left_out);
  return {};
}

}  // namespace

std::string adapter_file(const Folder& folder) {
  for (const char* const name : {"adapter_model.safetensors", "adapter_model.bin"}) {
    if (folder.has(name)) return name;
  }
  return {};
}

Result<LoraConfig> read_lora_config(const FileSystem& files, const Folder& folder) {
  const std::string path = join_path(folder.path, kConfigName);
  EVALCAR_ASSIGN_OR_RETURN(
      const std::string text,
      read_inside(files, folder, std::string(kConfigName), kMaxAdapterConfigBytes));
  EVALCAR_RETURN_IF_ERROR(check_json_object(text, path));
  return parse_lora_config(text, path);
}

Status add_adapter(const FileSystem& files, const Folder& folder, Plan& plan) {
  const std::string name = adapter_file(folder);
  if (name.empty()) {
    return make_error(ErrorCode::kUnavailable,
                      join_path(folder.path, "adapter_model.safetensors") + ": is missing");
  }
  PlanBudget budget;
  return name.ends_with(".bin") ? add_torch_file(files, folder, name, budget, plan)
                                : add_safetensors_file(files, folder, name, plan);
}

Result<Plan> plan_lora(const FileSystem& files, const Folder& adapter, const Folder* dcp,
                       const Folder& base) {
  EVALCAR_ASSIGN_OR_RETURN(const LoraConfig config, read_lora_config(files, adapter));
  auto base_plan = plan_hugging_face(files, base);
  if (!base_plan.has_value()) {
    return make_error(base_plan.error().code,
                      "the base model of " + adapter.path + ": " + base_plan.error().message);
  }
  Plan plan = std::move(base_plan).value();
  plan.layout = Layout::kLoraAdapter;
  EVALCAR_ASSIGN_OR_RETURN(BaseTies ties, read_base_ties(files, base, plan));
  ties.has_head = config.of_language_model;

  const std::string where =
      dcp != nullptr ? dcp->path : join_path(adapter.path, adapter_file(adapter));
  Plan own;  // its pieces count the base's files too
  own.files = plan.files;
  EVALCAR_RETURN_IF_ERROR(dcp != nullptr ? add_dcp(files, *dcp, own)
                                         : add_adapter(files, adapter, own));
  plan.files = std::move(own.files);
  plan.world_size = own.world_size;
  plan.records.insert(plan.records.end(), own.records.begin(), own.records.end());
  for (std::string& name : own.extra_states) plan.extra_states.push_back(std::move(name));
  for (std::string& name : own.left_out) plan.left_out.push_back(std::move(name));
  EVALCAR_RETURN_IF_ERROR(
      lay_adapter_over(files, where, config, std::move(own.tensors), ties, plan));
  return plan;
}

}  // namespace evalcar::checkpoint
