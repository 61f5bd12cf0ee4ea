// Folders of torch.distributed.checkpoint's HuggingFaceStorageWriter: every rank writes
// `shard-<rank>-model-<i>-of-<n>.safetensors`, whose metadata says where in the full tensors its
// tensors begin. With consolidation they lie in `sharded/`, and the folder around it becomes one of
// the Hugging Face layout as soon as its index is there.
//
// Nothing says how many ranks there are, and a rank without tensors writes no file. So a tensor's
// full shape is where its last shard ends, and complete means that the shards which are there tile
// it: a gap is seen, a missing last shard is not. A watcher waits until nothing changes, and an
// evaluation compares every shape with the configuration.
#include <algorithm>
#include <map>

#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/layout_entry.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/safetensors.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kShardedFolder = "sharded";
constexpr const char* kShardingInfo = "DCP_SHARDING_INFO";

bool is_shard(std::string_view name) {
  return name.starts_with("shard-") && name.find("-model-") != std::string_view::npos &&
         name.ends_with(".safetensors");
}

/// The folder that the shards are in: the checkpoint itself or its `sharded/`; without entries if
/// there is none.
Folder shard_folder(const LayoutScene& scene) {
  if (any_entry(scene.folder, is_shard)) return scene.folder;
  // A link out of the checkpoint is no such folder.
  auto sharded = sub_folder(scene.files, scene.folder, std::string(kShardedFolder));
  if (!sharded.has_value() || !any_entry(*sharded, is_shard)) return {};
  return std::move(sharded).value();
}

bool recognise(const LayoutScene& scene) { return !shard_folder(scene).entries.empty(); }

/// {"<name>": {"saved_offsets": [0, 5]}, …}
class ShardingInfo final : public JsonVisitor {
 public:
  std::string open(const JsonPath& path, bool is_array) override {
    const bool list = path.size() == 2 && path[1] == "saved_offsets" && is_array;
    if (!list && (path.size() > 1 || is_array)) return "unexpected form";
    if (list) starts_[path[0]];
    return {};
  }
  std::string scalar(const JsonPath& path, const JsonScalar& value) override {
    if (path.size() != 3 || value.kind != JsonScalar::Kind::kUnsigned ||
        value.number > static_cast<std::uint64_t>(INT64_MAX)) {
      return "expected offsets from 0 to 2^63-1";
    }
    auto& start = starts_[path[0]];
    if (start.size() == kMaxDimensions) return "too many dimensions";
    start.push_back(static_cast<std::int64_t>(value.number));
    return {};
  }
  std::string close(const JsonPath&) override { return {}; }

  const std::vector<std::int64_t>* find(const std::string& name) const {
    const auto found = starts_.find(name);
    return found == starts_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, std::vector<std::int64_t>> starts_;
};

/// Puts the shards of all files together, tensor by tensor.
class ShardCollector {
 public:
  ShardCollector(const FileSystem& files, const Folder& folder, Plan& plan)
      : files_(files), folder_(folder), plan_(plan) {}

  Status collect() {
    for (const DirectoryEntry& entry : folder_.entries) {
      if (is_shard(entry.name)) EVALCAR_RETURN_IF_ERROR(add_file(entry.name));
    }
    for (auto& [name, tensor] : tensors_) {
      if (Status tiled = check_tiling(tensor); !tiled.has_value()) {
        // Shards of other ranks may still come.
        return make_error(ErrorCode::kUnavailable, folder_.path + ": " + tiled.error().message);
      }
      plan_.tensors.push_back(std::move(tensor));
    }
    if (!plan_.tensors.empty()) return {};
    return make_error(ErrorCode::kCorruption, folder_.path + ": the shards hold no tensor");
  }

 private:
  Status add_file(const std::string& name) {
    const std::string path = join_path(folder_.path, name);
    EVALCAR_ASSIGN_OR_RETURN(const auto file, open_inside(files_, folder_.path, name));
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo identity, file->info());
    EVALCAR_ASSIGN_OR_RETURN(const SafetensorsFile parsed, read_safetensors(*file, path));
    EVALCAR_RETURN_IF_ERROR(check_unchanged(*file, identity, path));
    const auto text = parsed.metadata.find(kShardingInfo);
    if (text == parsed.metadata.end()) {
      return make_error(ErrorCode::kCorruption, path + ": has no " + kShardingInfo +
                                                    " in its header at byte 8, expected a shard of "
                                                    "HuggingFaceStorageWriter");
    }
    ShardingInfo info;
    constexpr std::size_t kDepth = 3;
    EVALCAR_RETURN_IF_ERROR(
        scan_json(text->second, path + ": " + kShardingInfo + " of the header", kDepth, info));
    plan_.files.push_back({path, identity});
    for (const SafetensorsTensor& stored : parsed.tensors) {
      if (Status added = add_shard(stored, parsed.data_offset, info.find(stored.name));
          !added.has_value()) {
        return make_error(ErrorCode::kCorruption,
                          path + ": tensor " + quote_name(stored.name) + " at byte " +
                              std::to_string(parsed.data_offset + stored.begin) + " " +
                              added.error().message);
      }
    }
    return {};
  }

  Status add_shard(const SafetensorsTensor& stored, std::uint64_t data_offset,
                   const std::vector<std::int64_t>* start) {
    const auto bad = [](const std::string& why) { return make_error(ErrorCode::kCorruption, why); };
    if (start == nullptr) return bad("has no entry in " + std::string(kShardingInfo));
    if (start->size() != stored.shape.size()) {
      return bad("of shape " + shape_text(stored.shape) + " has the offsets " + shape_text(*start));
    }
    const auto [place, fresh] = tensors_.try_emplace(stored.name);
    TensorPlan& tensor = place->second;
    if (fresh) {
      tensor.name = stored.name;
      tensor.dtype = stored.dtype;
      tensor.shape.assign(stored.shape.size(), 0);
    } else if (tensor.dtype != stored.dtype || tensor.shape.size() != stored.shape.size()) {
      return bad("differs in dtype or dimensions from another shard's: shards of two saves?");
    }
    for (std::size_t d = 0; d < stored.shape.size(); ++d) {
      if (stored.shape[d] > INT64_MAX - (*start)[d]) return bad("ends beyond 2^63");
      tensor.shape[d] = std::max(tensor.shape[d], (*start)[d] + stored.shape[d]);
    }
    if (!checked_elements(tensor.shape)) return bad("makes its full tensor too large");
    tensor.pieces.push_back({plan_.files.size() - 1, data_offset + stored.begin, *start,
                             stored.shape, contiguous_strides(stored.shape)});
    return {};
  }

  const FileSystem& files_;
  const Folder& folder_;
  Plan& plan_;
  std::map<std::string, TensorPlan> tensors_;
};

Result<Plan> plan(const LayoutScene& scene, WeightsKind kind) {
  const Folder folder = shard_folder(scene);
  Plan plan;
  plan.layout = Layout::kDcpSafetensors;
  plan.kind = kind;
  ShardCollector collector(scene.files, folder, plan);
  EVALCAR_RETURN_IF_ERROR(collector.collect());
  EVALCAR_RETURN_IF_ERROR(sort_tensors(plan));
  return plan;
}

Result<JudgedKind> judge(const LayoutScene& scene, WeightsKind kind) {
  EVALCAR_ASSIGN_OR_RETURN(Plan made, plan(scene, kind));
  JudgedKind judged;
  std::vector<std::string> weights;
  for (const PlanFile& file : made.files) {
    const bool direct = parent_path(file.path) == scene.folder.path;
    weights.push_back(direct ? base_name(file.path)
                             : join_path(std::string(kShardedFolder), base_name(file.path)));
  }
  set_complete(judged.state, scene, std::move(weights));
  judged.plan = std::move(made);
  return judged;
}

void finish(const LayoutScene& scene, LayoutReport& report) {
  if (!report.step) report.step = step_of_name(base_name(scene.folder.path), "step-{step}");
  apply_trainer_state(scene, report);
}

}  // namespace

bool holds_dcp_safetensors(const LayoutScene& scene) { return recognise(scene); }

const LayoutEntry& dcp_safetensors_layout() {
  static constexpr LayoutEntry kEntry = {
      .layout = Layout::kDcpSafetensors,
      .name = "dcp_safetensors",
      .looked_for = "shard-R-model-I-of-N.safetensors",
      .recognise = recognise,
      .judge = judge,
      .plan = plan,
      .finish = finish,
  };
  return kEntry;
}

}  // namespace evalcar::checkpoint
