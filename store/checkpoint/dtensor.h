// DTensors in a torch.save file, and the one computation of merging: which box of the full tensor a
// rank holds, from the mesh and the placements that the file itself states.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "store/checkpoint/plan.h"
#include "store/checkpoint/torch_tensor.h"

namespace evalcar::checkpoint {

/// How a tensor lies over one dimension of the mesh.
struct Placement {
  enum class Kind { kReplicate, kShard, kStridedShard };
  Kind kind = Kind::kReplicate;
  std::int64_t dim = 0;           ///< of the tensor
  std::int64_t split_factor = 1;  ///< of kStridedShard
  bool operator==(const Placement&) const = default;
};

/// The ranks over which a tensor is spread, as one of them sees it.
struct Mesh {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> coordinate;  ///< this rank's; as long as `shape`
  bool holds_this_rank = true;
};

/// A DTensor as one rank's file has it.
struct StoredDTensor {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;  ///< of the full tensor
  Mesh mesh;
  std::vector<Placement> placements;     ///< one per mesh dimension
  std::vector<std::size_t> shard_order;  ///< mesh dimensions of the Shards, in order of cutting
  StoredTensor local;
};

/// Reads the DTensors of one rank's file. Meshes are parsed once; not thread-safe.
class DTensorReader {
 public:
  /// All three must outlive the reader. `rank` is the file's own rank, of `world_size`.
  DTensorReader(const TorchFile& torch_file, const ReadableFile& file, int rank, int world_size)
      : torch_file_(torch_file), file_(file), rank_(rank), world_size_(world_size) {}

  static bool is_dtensor(const Pickle& pickle, Pickle::NodeId node) {
    return pickle.is_object(node, PickleGlobal::kRebuildFromType2);
  }
  /// kCorruption where the file contradicts itself, kUnsupported by name for Partial and for a
  /// _StridedShard that says something else than the order of cutting.
  Result<StoredDTensor> read(Pickle::NodeId node, const std::string& name);

 private:
  Result<Mesh> read_mesh(Pickle::NodeId node, const std::string& name);
  Result<Mesh> parse_mesh(Pickle::NodeId node, const std::string& name);
  Result<std::vector<std::int64_t>> read_ranks(Pickle::NodeId node, const std::string& name) const;
  Result<std::vector<Placement>> read_placements(Pickle::NodeId node,
                                                 const std::string& name) const;
  Status check_strided(Pickle::NodeId spec_state, const StoredDTensor& tensor,
                       const std::string& name) const;
  Status read_shard_order(Pickle::NodeId spec_state, StoredDTensor& tensor,
                          const std::string& name) const;

  const TorchFile& torch_file_;
  const ReadableFile& file_;
  int rank_;
  int world_size_;
  std::map<Pickle::NodeId, Mesh> meshes_;
};

/// The box that the rank at `coordinate` holds. torch.chunk's rule: parts of ceil(n / parts), the
/// last ones smaller or empty. Shards are cut in `shard_order`, then _StridedShards from the last
/// mesh dimension to the first (tensor parallelism is applied before FSDP). Placements must be
/// valid for the shape.
Box local_box(const std::vector<std::int64_t>& shape, const Mesh& mesh,
              const std::vector<Placement>& placements,
              const std::vector<std::size_t>& shard_order);

}  // namespace evalcar::checkpoint
