// The Hugging Face layout: one file, or shards that an index names; safetensors, or torch.save
// files
// (`.bin`), which transformers 4 wrote with safe_serialization=False and accelerate writes for a
// full state_dict.
#include <algorithm>
#include <array>
#include <set>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/safetensors.h"
#include "store/checkpoint/tensor_names.h"

namespace evalcar::checkpoint {

Status add_safetensors_file(const FileSystem& files, const Folder& folder, const std::string& name,
                            Plan& plan) {
  const std::string path = join_path(folder.path, name);
  EVALCAR_ASSIGN_OR_RETURN(const auto file, open_inside(files, folder, name));
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo identity, file->info());
  EVALCAR_ASSIGN_OR_RETURN(SafetensorsFile parsed, read_safetensors(*file, path));
  EVALCAR_RETURN_IF_ERROR(check_unchanged(*file, identity, path));
  plan.files.push_back({path, identity});
  plan.tensors.reserve(plan.tensors.size() + parsed.tensors.size());
  for (SafetensorsTensor& stored : parsed.tensors) {
    TensorPlan tensor;
    tensor.name = std::move(stored.name);
    tensor.dtype = stored.dtype;
    tensor.shape = stored.shape;
    if (tensor.elements() > 0) {
      tensor.pieces.push_back(Piece{plan.files.size() - 1, parsed.data_offset + stored.begin,
                                    std::vector<std::int64_t>(stored.shape.size(), 0),
                                    std::move(stored.shape), contiguous_strides(tensor.shape)});
    }
    plan.tensors.push_back(std::move(tensor));
  }
  return {};
}

namespace {

constexpr std::string_view kIndexSuffix = ".index.json";
/// Names of a single file, in the order in which they are looked for, and how shards of it begin.
struct FileFamily {
  std::string_view single;
  std::string_view shard_prefix;  // empty: never sharded
  std::string_view suffix;
};
constexpr std::array<FileFamily, 3> kFileFamilies = {
    {{"model.safetensors", "model-", ".safetensors"},
     {"pytorch_model.bin", "pytorch_model-", ".bin"},
     {"pytorch_model_fsdp.bin", "", ".bin"}}};

/// " at byte N", where a tensor has bytes.
std::string byte_of(const TensorPlan& tensor) {
  if (tensor.pieces.empty()) return {};
  return " at byte " + std::to_string(tensor.pieces[0].file_offset);
}

/// Every tensor must be where the index says, and nowhere else.
Status check_against_index(const Plan& plan, const std::map<std::string, IndexedTensor>& index,
                           const std::map<std::string, std::string>& found,
                           const std::string& where) {
  for (const auto& [name, said] : index) {
    const auto place = found.find(name);
    if (place == found.end() || place->second != said.file) {
      return make_error(ErrorCode::kCorruption, where + ": tensor " + quote_name(name) +
                                                    " is not in " + quote_name(said.file) +
                                                    ", where the index says it is at byte " +
                                                    std::to_string(said.offset));
    }
  }
  if (index.size() != plan.tensors.size()) {
    for (const TensorPlan& tensor : plan.tensors) {
      if (!index.contains(tensor.name)) {
        return make_error(ErrorCode::kCorruption, where + ": tensor " + quote_name(tensor.name) +
                                                      " of file " +
                                                      quote_name(found.at(tensor.name)) +
                                                      byte_of(tensor) + " is not in the index");
      }
    }
  }
  return {};
}

Status add_file(const FileSystem& files, const Folder& folder, const std::string& name,
                PlanBudget& budget, Plan& plan) {
  return name.ends_with(".bin") ? add_torch_file(files, folder, name, budget, plan)
                                : add_safetensors_file(files, folder, name, plan);
}

Status add_indexed(const FileSystem& files, const Folder& folder, const std::string& index_name,
                   Plan& plan) {
  const std::string path = join_path(folder.path, index_name);
  EVALCAR_ASSIGN_OR_RETURN(const std::string text,
                           read_inside(files, folder, index_name, kMaxIndexBytes));
  const auto index = parse_safetensors_index(text, path);
  if (!index.has_value() && may_still_grow(text)) {
    return make_error(ErrorCode::kUnavailable,
                      path + ": ends before its JSON does (still being written, or torn)");
  }
  if (!index.has_value()) return index.error();
  std::set<std::string> names;
  for (const auto& [tensor, said] : *index) names.insert(said.file);
  std::map<std::string, std::string> found;
  PlanBudget budget;
  for (const std::string& name : names) {
    const std::size_t before = plan.tensors.size();
    EVALCAR_RETURN_IF_ERROR(add_file(files, folder, name, budget, plan));
    for (std::size_t i = before; i < plan.tensors.size(); ++i) {
      if (!found.emplace(plan.tensors[i].name, name).second) {
        return make_error(ErrorCode::kCorruption, join_path(folder.path, name) + ": tensor " +
                                                      quote_name(plan.tensors[i].name) +
                                                      byte_of(plan.tensors[i]) +
                                                      " is in two files");
      }
    }
  }
  return check_against_index(plan, *index, found, path);
}

}  // namespace

std::optional<WeightsEntry> hugging_face_entry(const Folder& folder) {
  for (const FileFamily& family : kFileFamilies) {
    if (folder.has(family.single)) return WeightsEntry{std::string(family.single), false};
    const std::string index = std::string(family.single) + std::string(kIndexSuffix);
    const bool shards =
        std::any_of(folder.entries.begin(), folder.entries.end(), [&](const DirectoryEntry& entry) {
          return !family.shard_prefix.empty() && entry.name.starts_with(family.shard_prefix) &&
                 entry.name.ends_with(family.suffix);
        });
    if (shards || folder.has(index)) return WeightsEntry{index, true};
  }
  return std::nullopt;
}

Result<Plan> plan_hugging_face(const FileSystem& files, const Folder& folder) {
  Plan plan;
  plan.layout = Layout::kHuggingFace;
  plan.kind = WeightsKind::kRegular;
  const auto entry = hugging_face_entry(folder);
  if (!entry) return make_error(ErrorCode::kUnavailable, folder.path + ": holds no weights");
  if (!folder.has(entry->name)) {
    return make_error(ErrorCode::kUnavailable, join_path(folder.path, entry->name) +
                                                   ": is missing (written after the shards)");
  }
  if (entry->is_index) {
    EVALCAR_RETURN_IF_ERROR(add_indexed(files, folder, entry->name, plan));
  } else {
    PlanBudget budget;
    EVALCAR_RETURN_IF_ERROR(add_file(files, folder, entry->name, budget, plan));
  }
  if (Status settled = settle_names(plan); !settled.has_value()) {
    return with_context(settled.error(), folder.path);
  }
  if (plan.tensors.empty()) {
    return make_error(ErrorCode::kCorruption, folder.path + ": holds no tensor");
  }
  find_ties(plan);
  return plan;
}

}  // namespace evalcar::checkpoint
