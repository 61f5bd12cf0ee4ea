// lmms-engine's shards: W files, each the state_dict of one rank, whose DTensors say themselves
// where they belong. Plain tensors (buffers) are the same on every rank; the lowest rank's copy is
// taken.
#include <algorithm>
#include <map>
#include <set>

#include "store/checkpoint/dtensor.h"
#include "store/checkpoint/folder.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/tensor_names.h"

namespace evalcar::checkpoint {
namespace {

/// What all ranks have to say the same about one tensor.
struct Agreement {
  bool is_dtensor = false;
  std::vector<std::int64_t> mesh_shape;
  std::vector<Placement> placements;
  std::vector<std::size_t> shard_order;
  bool operator==(const Agreement&) const = default;
};

/// Collects the pieces of all ranks, tensor by tensor.
class ShardCollector {
 public:
  ShardCollector(const FileSystem& files, std::string folder, ShardSet shards, Plan& plan)
      : files_(files), folder_(std::move(folder)), shards_(std::move(shards)), plan_(plan) {}

  Status collect() {
    for (int rank = 0; rank < shards_.world_size; ++rank) {
      EVALCAR_RETURN_IF_ERROR(add_rank(rank));
    }
    for (auto& [name, tensor] : tensors_) {
      if (Status tiled = check_tiling(tensor.plan); !tiled.has_value()) {
        return with_context(tiled.error(), folder_);
      }
      plan_.tensors.push_back(std::move(tensor.plan));
    }
    for (const auto& [place, record] : records_) plan_.records.push_back(record);
    plan_.extra_states.assign(extra_states_.begin(), extra_states_.end());
    if (plan_.tensors.empty()) {
      return make_error(ErrorCode::kCorruption, folder_ + ": the shards hold no tensor");
    }
    return {};
  }

 private:
  struct Collected {
    TensorPlan plan;
    Agreement agreement;
    int last_rank = -1;
  };

  Status add_rank(int rank) {
    const std::string& name = shards_.names[static_cast<std::size_t>(rank)];
    const std::string path = join_path(folder_, name);
    EVALCAR_ASSIGN_OR_RETURN(const auto file, open_inside(files_, folder_, name));
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo identity, file->info());
    EVALCAR_ASSIGN_OR_RETURN(const TorchFile torch_file, TorchFile::read(*file, path));
    const Pickle& pickle = torch_file.pickle;
    if (pickle.kind(pickle.root()) != PickleKind::kDict) {
      return make_error(ErrorCode::kCorruption,
                        path + ": holds no dict of tensors" + torch_file.place());
    }
    budget_.allow_description(torch_file.description_bytes());
    DTensorReader dtensors(torch_file, *file, rank, shards_.world_size);
    const auto pairs = pickle.items(pickle.root());
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
      EVALCAR_RETURN_IF_ERROR(add_entry(torch_file, dtensors, rank, pairs[i], pairs[i + 1]));
    }
    EVALCAR_RETURN_IF_ERROR(check_unchanged(*file, identity, path));
    plan_.files.push_back({path, identity});
    return {};
  }

  Status add_entry(const TorchFile& torch_file, DTensorReader& dtensors, int rank,
                   Pickle::NodeId key, Pickle::NodeId value) {
    const Pickle& pickle = torch_file.pickle;
    if (pickle.kind(key) != PickleKind::kText) {
      return make_error(ErrorCode::kCorruption,
                        torch_file.where + ": a key that is not text" + torch_file.place());
    }
    const std::string name(pickle.text(key));
    if (is_extra_state(name)) {
      extra_states_.insert(name);
      return {};
    }

    Collected entry;
    entry.plan.name = name;
    entry.last_rank = rank;
    if (DTensorReader::is_dtensor(pickle, value)) {
      EVALCAR_ASSIGN_OR_RETURN(const StoredDTensor stored, dtensors.read(value, name));
      entry.plan.dtype = stored.dtype;
      entry.plan.shape = stored.shape;
      entry.agreement = {true, stored.mesh.shape, stored.placements, stored.shard_order};
      if (stored.mesh.holds_this_rank) {
        const Box box = local_box(stored.shape, stored.mesh, stored.placements, stored.shard_order);
        const bool both_empty = box.elements() == 0 && checked_elements(stored.local.size) == 0U;
        if (box.size != stored.local.size && !both_empty) {
          return torch_file.corrupt(
              name, "has a local tensor of size " + shape_text(stored.local.size) + ", expected " +
                        shape_text(box.size) + " from its mesh and placements");
        }
        if (box.elements() > 0) {
          add_record(torch_file, rank, stored.local);
          entry.plan.pieces.push_back(Piece{static_cast<std::size_t>(rank),
                                            stored.local.file_offset, box.start, box.size,
                                            stored.local.stride});
        }
      }
    } else if (is_plain_tensor(pickle, value)) {
      EVALCAR_ASSIGN_OR_RETURN(const StoredTensor stored,
                               read_stored_tensor(torch_file, value, name));
      entry.plan.dtype = stored.dtype;
      entry.plan.shape = stored.size;
      if (checked_elements(stored.size) != 0U) {
        add_record(torch_file, rank, stored);
        entry.plan.pieces.push_back(Piece{static_cast<std::size_t>(rank), stored.file_offset,
                                          std::vector<std::int64_t>(stored.size.size(), 0),
                                          stored.size, stored.stride});
      }
    } else {
      return make_error(ErrorCode::kUnsupported, torch_file.where + ": entry " + quote_name(name) +
                                                     " is not a tensor" + torch_file.place());
    }
    budget_.take_whole(entry.plan);
    budget_.take_found(entry.agreement.mesh_shape.size() + entry.agreement.shard_order.size());
    if (budget_.is_spent()) return torch_file.corrupt(name, PlanBudget::kTooMuch);
    return merge(std::move(entry), torch_file);
  }

  void add_record(const TorchFile& torch_file, int rank, const StoredTensor& tensor) {
    if (!torch_file.zip.has_checksums()) return;
    records_.emplace(std::pair(static_cast<std::size_t>(rank), tensor.record.offset),
                     PlanRecord{static_cast<std::size_t>(rank), tensor.record.offset,
                                tensor.record.size, tensor.record.crc32});
  }

  Status merge(Collected entry, const TorchFile& torch_file) {
    const std::string name = entry.plan.name;
    const auto [place, fresh] = tensors_.try_emplace(name, std::move(entry));
    if (fresh) return {};
    Collected& known = place->second;
    if (known.last_rank == entry.last_rank) {
      return torch_file.corrupt(name, "is in the file twice");
    }
    if (known.plan.dtype != entry.plan.dtype || known.plan.shape != entry.plan.shape ||
        known.agreement != entry.agreement) {
      return torch_file.corrupt(
          name, "differs in dtype, shape, mesh or placements from a lower rank's (" +
                    std::string(dtype_name(entry.plan.dtype)) + " " + shape_text(entry.plan.shape) +
                    ", expected " + std::string(dtype_name(known.plan.dtype)) + " " +
                    shape_text(known.plan.shape) + "): shards of two saves?");
    }
    known.last_rank = entry.last_rank;
    if (known.agreement.is_dtensor) {
      for (Piece& piece : entry.plan.pieces) known.plan.pieces.push_back(std::move(piece));
    }
    return {};
  }

  const FileSystem& files_;
  std::string folder_;
  ShardSet shards_;
  Plan& plan_;
  PlanBudget budget_;
  std::map<std::string, Collected> tensors_;
  std::map<std::pair<std::size_t, std::uint64_t>, PlanRecord> records_;  // by file and offset
  std::set<std::string> extra_states_;                                   // of all ranks
};

}  // namespace

Result<Plan> plan_fsdp2(const FileSystem& files, const std::string& shard_folder,
                        WeightsKind kind) {
  ShardSet shards = judge_shards(files, shard_folder, "model");
  if (!shards.status.has_value()) return shards.status.error();
  Plan plan;
  plan.layout = Layout::kLmmsEngineFsdp2;
  plan.kind = kind;
  plan.world_size = shards.world_size;
  ShardCollector collector(files, shard_folder, std::move(shards), plan);
  EVALCAR_RETURN_IF_ERROR(collector.collect());
  if (Status settled = settle_names(plan); !settled.has_value()) {
    return with_context(settled.error(), shard_folder);
  }
  find_ties(plan);
  return plan;
}

}  // namespace evalcar::checkpoint
