// Folders of torch.distributed.checkpoint's HuggingFaceStorageWriter: every rank writes
// `shard-<rank>-model-<i>-of-<n>.safetensors`, whose metadata says where in the full tensors its
// tensors begin. With consolidation they lie in `sharded/`, and the folder around it becomes one of
// the Hugging Face layout as soon as its index is there.
//
// The names say how many files there are, and each has to have a shard. Nothing says how many ranks
// there are, a rank without tensors of a file writes no shard of it, and no shard states a full
// shape. So a tensor's full shape is where its last shard ends, and complete means that every file
// has a shard and that the shards which are there tile each tensor: a gap is seen, a missing last
// shard of a file is not. A watcher waits until nothing changes, and an evaluation compares every
// shape with the configuration.
#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/layout_entry.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/safetensors.h"
#include "store/checkpoint/tensor_names.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kShardedFolder = "sharded";
constexpr const char* kShardingInfo = "DCP_SHARDING_INFO";

bool is_shard(std::string_view name) {
  return name.starts_with("shard-") && name.find("-model-") != std::string_view::npos &&
         name.ends_with(".safetensors");
}

/// What a shard's name says: rank R + 1 has this part of file I of N.
struct ShardName {
  std::uint32_t shard = 0;
  std::uint32_t file = 0;
  std::uint32_t files = 0;
};

/// "shard-00002-model-00001-of-00003.safetensors"; all numbers from 1, of five digits or more.
std::optional<ShardName> parse_name(std::string_view name) {
  const auto take = [&name](std::string_view before) -> std::uint32_t {
    if (!name.starts_with(before)) return 0;
    name.remove_prefix(before.size());
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    const auto digits = static_cast<std::size_t>(end - name.data());
    if (error != std::errc() || digits < 5 || (digits > 5 && name[0] == '0')) return 0;
    name.remove_prefix(digits);
    return number;
  };
  const ShardName parsed{take("shard-"), take("-model-"), take("-of-")};
  const bool sound =
      parsed.shard > 0 && parsed.file > 0 && parsed.file <= parsed.files && name == ".safetensors";
  return sound ? std::optional(parsed) : std::nullopt;
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
    EVALCAR_RETURN_IF_ERROR(check_names());
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
  /// The names say how many files there are, but not how many shards each has.
  Status check_names() const {
    std::set<std::uint32_t> found;
    std::uint32_t files = 0;
    for (const DirectoryEntry& entry : folder_.entries) {
      if (!is_shard(entry.name)) continue;
      const std::string path = join_path(folder_.path, entry.name);
      const auto name = parse_name(entry.name);
      if (!name) {
        return make_error(
            ErrorCode::kCorruption,
            path + ": expected a name like shard-00001-model-00001-of-00002.safetensors");
      }
      if (files != 0 && files != name->files) {
        return make_error(ErrorCode::kUnavailable,
                          path + ": is of " + std::to_string(name->files) + " files, others of " +
                              std::to_string(files) + ": shards of two saves lie side by side");
      }
      files = name->files;
      found.insert(name->file);
    }
    for (std::uint32_t file = 1; file <= files; ++file) {
      if (found.contains(file)) continue;
      return make_error(ErrorCode::kUnavailable, folder_.path + ": no shard of file " +
                                                     std::to_string(file) + " of " +
                                                     std::to_string(files) + " is there");
    }
    return {};
  }

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
        scan_json(text->second, path + ": " + kShardingInfo + " of the header at byte 8, in it",
                  kDepth, info));
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
  if (Status settled = settle_names(plan); !settled.has_value()) {
    return with_context(settled.error(), folder.path);
  }
  return plan;
}

Result<JudgedKind> judge(const LayoutScene& scene, WeightsKind kind) {
  EVALCAR_ASSIGN_OR_RETURN(Plan made, plan(scene, kind));
  JudgedKind judged;
  std::vector<std::string> weights;
  for (const PlanFile& file : made.files) {
    const bool direct = parent_path(file.path) == scene.folder.path;
    weights.push_back(direct ? base_name(file.path)
                             : join_path(kShardedFolder, base_name(file.path)));
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
