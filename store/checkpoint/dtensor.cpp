// References: torch/distributed/tensor/_dtensor_spec.py, placement_types.py, device_mesh.py of
// torch 2.4 to 2.15.
#include "store/checkpoint/dtensor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "store/checkpoint/mesh_layout.h"
#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::size_t kMaxRanks = 65536;
constexpr std::size_t kMaxMeshes = 1024;

/// Row-major coordinate of place `index` of a mesh tensor.
std::vector<std::int64_t> row_major_coordinate(std::int64_t index,
                                               const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> coordinate(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    coordinate[d] = index % shape[d];
    index /= shape[d];
  }
  return coordinate;
}

}  // namespace

Result<std::vector<std::int64_t>> DTensorReader::read_ranks(Pickle::NodeId node,
                                                            const std::string& name) const {
  EVALCAR_ASSIGN_OR_RETURN(const StoredTensor ranks,
                           read_stored_tensor(torch_file_, node, name + " (mesh)"));
  const auto elements = checked_elements(ranks.size).value_or(0);
  const bool integers = ranks.dtype == DType::kInt32 || ranks.dtype == DType::kInt64;
  if (!integers || elements == 0 || elements > kMaxRanks ||
      ranks.stride != contiguous_strides(ranks.size)) {
    return torch_file_.corrupt(name, "has a mesh that is not a small tensor of ranks");
  }
  const std::size_t width = dtype_size(ranks.dtype);
  std::vector<std::byte> bytes(elements * width);
  EVALCAR_RETURN_IF_ERROR(file_.read_exactly_at(ranks.file_offset, bytes, torch_file_.where));
  std::vector<std::int64_t> values;
  for (std::size_t i = 0; i < elements; ++i) {
    std::int64_t value = 0;
    if (width == 4) {
      std::int32_t narrow = 0;
      std::memcpy(&narrow, bytes.data() + i * width, width);
      value = narrow;
    } else {
      std::memcpy(&value, bytes.data() + i * width, width);
    }
    if (value < 0 || value >= world_size_) {
      return torch_file_.corrupt(name, "has rank " + std::to_string(value) +
                                           " in its mesh, of a world of " +
                                           std::to_string(world_size_));
    }
    values.push_back(value);
  }
  std::vector<std::int64_t> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return torch_file_.corrupt(name, "has a rank twice in its mesh");
  }
  return values;
}

Result<Mesh> DTensorReader::read_mesh(Pickle::NodeId node, const std::string& name) {
  if (const auto known = meshes_.find(node); known != meshes_.end()) return known->second;
  if (meshes_.size() >= kMaxMeshes) return torch_file_.corrupt(name, "has one mesh too many");
  EVALCAR_ASSIGN_OR_RETURN(Mesh mesh, parse_mesh(node, name));
  return meshes_.emplace(node, std::move(mesh)).first->second;
}

Result<Mesh> DTensorReader::parse_mesh(Pickle::NodeId node, const std::string& name) {
  const Pickle& pickle = torch_file_.pickle;
  const auto bad = [&](const std::string& why) { return torch_file_.corrupt(name, why); };
  if (!pickle.is_object(node, PickleGlobal::kDeviceMesh) || !pickle.state(node)) {
    return bad("has no DeviceMesh");
  }
  const Pickle::NodeId state = *pickle.state(node);
  Mesh mesh;
  std::vector<std::int64_t> expected;  // this rank's coordinate by the list of ranks
  if (const auto ranks_node = pickle.find(state, "mesh")) {  // torch 2.4 to 2.9
    EVALCAR_ASSIGN_OR_RETURN(const auto ranks, read_ranks(*ranks_node, name));
    EVALCAR_ASSIGN_OR_RETURN(const StoredTensor tensor,
                             read_stored_tensor(torch_file_, *ranks_node, name));
    mesh.shape = tensor.size;
    const auto place = std::find(ranks.begin(), ranks.end(), rank_);
    mesh.holds_this_rank = place != ranks.end();
    if (mesh.holds_this_rank) expected = row_major_coordinate(place - ranks.begin(), mesh.shape);
  } else {  // torch 2.10 on
    const auto layout_node = pickle.find(state, "_layout");
    const auto map_node = pickle.find(state, "_rank_map");
    const auto layout = layout_node ? read_mesh_layout(pickle, *layout_node) : std::nullopt;
    if (!layout || !map_node) return bad("has a DeviceMesh of an unknown form");
    EVALCAR_ASSIGN_OR_RETURN(const auto ranks, read_ranks(*map_node, name));
    for (const MeshDimension& dimension : *layout) {
      std::int64_t size = 1;
      for (const auto& [part, stride] : dimension) {
        if (part < 1 || part > static_cast<std::int64_t>(kMaxRanks) / size) {
          return bad("has a mesh of an impossible shape");
        }
        size *= part;
      }
      mesh.shape.push_back(size);
    }
    const auto place = std::find(ranks.begin(), ranks.end(), rank_);
    mesh.holds_this_rank = place != ranks.end();
    if (mesh.holds_this_rank) expected = coordinate_of(place - ranks.begin(), *layout);
  }
  const auto size = checked_elements(mesh.shape);
  if (mesh.shape.empty() || mesh.shape.size() > kMaxMeshDimensions || !size || *size < 1 ||
      *size > static_cast<std::uint64_t>(world_size_)) {
    return bad("has a mesh of shape " + shape_text(mesh.shape) + " in a world of " +
               std::to_string(world_size_));
  }
  const auto own_node = pickle.find(state, "_coordinate_on_dim");
  if (!own_node || pickle.kind(*own_node) == PickleKind::kNone) {
    // A rank outside of the mesh has no coordinate, and holds nothing.
    if (own_node && mesh.holds_this_rank) mesh.holds_this_rank = false;
    mesh.coordinate = std::move(expected);
    return mesh;
  }
  const auto own = read_sizes(pickle, *own_node, kMaxMeshDimensions);
  if (!own || !mesh.holds_this_rank || *own != expected) {
    return bad("says that rank " + std::to_string(rank_) + " is at " +
               (own ? shape_text(*own) : "?") + " of its mesh, but the list of ranks says " +
               (mesh.holds_this_rank ? shape_text(expected) : "that it is not in it"));
  }
  mesh.coordinate = *own;
  return mesh;
}

Result<std::vector<Placement>> DTensorReader::read_placements(Pickle::NodeId node,
                                                              const std::string& name) const {
  const Pickle& pickle = torch_file_.pickle;
  const bool sequence =
      pickle.kind(node) == PickleKind::kTuple || pickle.kind(node) == PickleKind::kList;
  if (!sequence || pickle.items(node).size() > kMaxMeshDimensions) {
    return torch_file_.corrupt(name, "has no placements");
  }
  std::vector<Placement> placements;
  for (const Pickle::NodeId item : pickle.items(node)) {
    Placement& placement = placements.emplace_back();
    if (pickle.is_object(item, PickleGlobal::kReplicate)) continue;
    if (pickle.is_object(item, PickleGlobal::kPartial)) {
      return make_error(ErrorCode::kUnsupported,
                        torch_file_.where + ": tensor " + quote_name(name) +
                            " is placed as Partial: its shards are summands, not parts" +
                            torch_file_.place());
    }
    const bool strided = pickle.is_object(item, PickleGlobal::kStridedShard);
    if (!strided && !pickle.is_object(item, PickleGlobal::kShard)) {
      return make_error(ErrorCode::kUnsupported,
                        torch_file_.where + ": tensor " + quote_name(name) +
                            " has a placement of an unknown kind" + torch_file_.place());
    }
    placement.kind = strided ? Placement::Kind::kStridedShard : Placement::Kind::kShard;
    const auto state = pickle.state(item);
    const auto dim = state ? pickle.find(*state, "dim") : std::nullopt;
    const auto factor = strided && state ? pickle.find(*state, "split_factor") : std::nullopt;
    if (!dim || pickle.kind(*dim) != PickleKind::kInteger ||
        (strided && (!factor || pickle.kind(*factor) != PickleKind::kInteger))) {
      return torch_file_.corrupt(name, "has a Shard without its dimension");
    }
    placement.dim = pickle.integer(*dim);
    if (strided) placement.split_factor = pickle.integer(*factor);
  }
  return placements;
}

/// A _StridedShard that says that the later dimensions of the mesh cut first, as tensor parallelism
/// under FSDP does, has the product of their sizes for its split factor. Any other one is of a
/// sharded view, whose parts are no boxes.
Status DTensorReader::check_strided(Pickle::NodeId spec_state, const StoredDTensor& tensor,
                                    const std::string& name) const {
  const Pickle& pickle = torch_file_.pickle;
  const auto refused = [&](std::size_t m, const std::string& why) {
    return make_error(
        ErrorCode::kUnsupported,
        torch_file_.where + ": tensor " + quote_name(name) +
            " is placed as _StridedShard(dim=" + std::to_string(tensor.placements[m].dim) +
            ", split_factor=" + std::to_string(tensor.placements[m].split_factor) + "), " + why +
            torch_file_.place());
  };
  const auto as_order = pickle.find(spec_state, "use_strided_shard_as_shard_order");
  for (std::size_t m = 0; m < tensor.placements.size(); ++m) {
    if (tensor.placements[m].kind != Placement::Kind::kStridedShard) continue;
    if (as_order && pickle.kind(*as_order) == PickleKind::kBool && pickle.integer(*as_order) == 0) {
      return refused(m, "which is not an order of cutting there (a sharded view)");
    }
    std::int64_t later_shards = 1;
    for (std::size_t other = m + 1; other < tensor.placements.size(); ++other) {
      if (tensor.placements[other].kind != Placement::Kind::kReplicate &&
          tensor.placements[other].dim == tensor.placements[m].dim) {
        later_shards *= tensor.mesh.shape[other];
      }
    }
    if (tensor.placements[m].split_factor != later_shards) {
      return refused(
          m, "expected a split factor of " + std::to_string(later_shards) + " from its mesh");
    }
  }
  return {};
}

/// torch 2.10 on: the order in which the mesh dimensions cut a tensor dimension, where it is not
/// simply from left to right.
Status DTensorReader::read_shard_order(Pickle::NodeId spec_state, StoredDTensor& tensor,
                                       const std::string& name) const {
  const Pickle& pickle = torch_file_.pickle;
  for (std::size_t m = 0; m < tensor.placements.size(); ++m) {
    if (tensor.placements[m].kind == Placement::Kind::kShard) tensor.shard_order.push_back(m);
  }
  const auto order = pickle.find(spec_state, "shard_order");
  if (!order || pickle.kind(*order) != PickleKind::kTuple) return {};
  std::vector<std::size_t> stated;
  if (pickle.items(*order).size() > kMaxMeshDimensions) {
    return torch_file_.corrupt(name, "has a malformed shard_order");
  }
  for (const Pickle::NodeId entry : pickle.items(*order)) {
    const auto parts = pickle.is_object(entry, PickleGlobal::kShardOrderEntry)
                           ? pickle.arguments(entry)
                           : std::span<const Pickle::NodeId>{};
    const auto mesh_dims =
        parts.size() == 2 ? read_sizes(pickle, parts[1], kMaxMeshDimensions) : std::nullopt;
    if (!mesh_dims || pickle.kind(parts[0]) != PickleKind::kInteger ||
        stated.size() > kMaxMeshDimensions) {
      return torch_file_.corrupt(name, "has a malformed shard_order");
    }
    for (const std::int64_t m : *mesh_dims) {
      if (m >= static_cast<std::int64_t>(tensor.placements.size()) ||
          tensor.placements[static_cast<std::size_t>(m)].dim != pickle.integer(parts[0])) {
        return torch_file_.corrupt(name, "has a shard_order that contradicts its placements");
      }
      stated.push_back(static_cast<std::size_t>(m));
    }
  }
  std::vector<std::size_t> sorted = stated;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != tensor.shard_order) {
    return torch_file_.corrupt(name, "has a shard_order that contradicts its placements");
  }
  tensor.shard_order = std::move(stated);
  return {};
}

Result<StoredDTensor> DTensorReader::read(Pickle::NodeId node, const std::string& name) {
  const Pickle& pickle = torch_file_.pickle;
  const auto bad = [&](const std::string& why) { return torch_file_.corrupt(name, why); };
  // _rebuild_from_type_v2(_rebuild_wrapper_subclass, DTensor, (…), (None, {"_local_tensor": …,
  // "_spec": …}))
  const auto outer = pickle.arguments(node);
  if (outer.size() != 4 || !pickle.is_global(outer[0], PickleGlobal::kRebuildWrapperSubclass) ||
      !pickle.is_global(outer[1], PickleGlobal::kDTensor)) {
    return bad("is rebuilt in a way that DTensors are not");
  }
  // (DTensor, dtype, global size, global stride, 0, layout, device, requires_grad)
  const auto wrapper = pickle.items(outer[2]);
  if (pickle.kind(outer[2]) != PickleKind::kTuple || wrapper.size() < 4 ||
      !pickle.is_global(wrapper[0], PickleGlobal::kDTensor) ||
      !pickle.is_global(wrapper[1], PickleGlobal::kDType)) {
    return bad("is a DTensor without dtype and size");
  }
  Pickle::NodeId slots = outer[3];
  if (pickle.kind(slots) == PickleKind::kTuple) {
    if (pickle.items(slots).size() != 2) return bad("is a DTensor with a malformed state");
    slots = pickle.items(slots)[1];
  }
  const auto local = pickle.find(slots, "_local_tensor");
  const auto spec = pickle.find(slots, "_spec");
  if (!local || !spec || !pickle.is_object(*spec, PickleGlobal::kDTensorSpec) ||
      !pickle.state(*spec)) {
    return bad("is a DTensor without local tensor and spec");
  }
  const Pickle::NodeId spec_state = *pickle.state(*spec);
  const auto mesh = pickle.find(spec_state, "mesh");
  const auto placements = pickle.find(spec_state, "placements");
  const auto meta = pickle.find(spec_state, "tensor_meta");
  if (!mesh || !placements || !meta || !pickle.is_object(*meta, PickleGlobal::kTensorMeta) ||
      pickle.arguments(*meta).size() != 3) {
    return bad("has a spec without mesh, placements or tensor_meta");
  }

  StoredDTensor tensor;
  tensor.dtype = pickle.dtype(wrapper[1]);
  const auto shape = read_sizes(pickle, wrapper[2], kMaxDimensions);
  const auto meta_parts = pickle.arguments(*meta);  // shape, stride, dtype
  const auto meta_shape = read_sizes(pickle, meta_parts[0], kMaxDimensions);
  if (!shape || !checked_elements(*shape)) return bad("has a malformed size");
  if (meta_shape != shape || !pickle.is_global(meta_parts[2], PickleGlobal::kDType) ||
      pickle.dtype(meta_parts[2]) != tensor.dtype) {
    return bad("has a size or dtype that its spec contradicts");
  }
  tensor.shape = *shape;
  EVALCAR_ASSIGN_OR_RETURN(tensor.local, read_stored_tensor(torch_file_, *local, name));
  if (tensor.local.dtype != tensor.dtype) {
    return bad("is " + std::string(dtype_name(tensor.dtype)) + " with a local tensor of " +
               std::string(dtype_name(tensor.local.dtype)));
  }
  EVALCAR_ASSIGN_OR_RETURN(tensor.placements, read_placements(*placements, name));
  for (const Placement& placement : tensor.placements) {
    if (placement.kind != Placement::Kind::kReplicate &&
        (placement.dim < 0 || placement.dim >= static_cast<std::int64_t>(tensor.shape.size()))) {
      return bad("is sharded along dimension " + std::to_string(placement.dim) + " of " +
                 std::to_string(tensor.shape.size()));
    }
  }
  EVALCAR_ASSIGN_OR_RETURN(tensor.mesh, read_mesh(*mesh, name));
  if (tensor.placements.size() != tensor.mesh.shape.size()) {
    return bad("has " + std::to_string(tensor.placements.size()) + " placements on a mesh of " +
               std::to_string(tensor.mesh.shape.size()) + " dimensions");
  }
  EVALCAR_RETURN_IF_ERROR(check_strided(spec_state, tensor, name));
  EVALCAR_RETURN_IF_ERROR(read_shard_order(spec_state, tensor, name));
  return tensor;
}

Box local_box(const std::vector<std::int64_t>& shape, const Mesh& mesh,
              const std::vector<Placement>& placements,
              const std::vector<std::size_t>& shard_order) {
  Box box{std::vector<std::int64_t>(shape.size(), 0), shape};
  const auto cut = [&](std::size_t m) {
    const auto d = static_cast<std::size_t>(placements[m].dim);
    const std::int64_t parts = mesh.shape[m];
    const std::int64_t n = box.size[d];
    const std::int64_t chunk = n / parts + (n % parts != 0 ? 1 : 0);
    const std::int64_t begin = chunk == 0 ? 0 : std::min(n, chunk * mesh.coordinate[m]);
    box.start[d] += begin;
    box.size[d] = std::min(chunk, n - begin);
  };
  for (const std::size_t m : shard_order) cut(m);
  for (std::size_t m = placements.size(); m-- > 0;) {
    if (placements[m].kind == Placement::Kind::kStridedShard) cut(m);
  }
  return box;
}

}  // namespace evalcar::checkpoint
