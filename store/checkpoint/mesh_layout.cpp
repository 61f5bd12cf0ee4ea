// Reference: torch/distributed/_mesh_layout.py of torch 2.10 to 2.15.
#include "store/checkpoint/mesh_layout.h"

#include <span>
#include <string_view>

#include "store/checkpoint/torch_tensor.h"

namespace evalcar::checkpoint {
namespace {

/// An entry of _MeshLayout.shape or .stride: an integer, or a tuple of integers.
std::optional<std::vector<std::int64_t>> read_layout_entry(const Pickle& pickle,
                                                           Pickle::NodeId node) {
  if (pickle.kind(node) != PickleKind::kInteger) {
    return read_sizes(pickle, node, kMaxMeshDimensions);
  }
  if (pickle.integer(node) < 0) return std::nullopt;
  return std::vector<std::int64_t>{pickle.integer(node)};
}

/// The sizes and strides of one dimension.
std::optional<MeshDimension> read_dimension(const Pickle& pickle, Pickle::NodeId shape,
                                            Pickle::NodeId stride) {
  const auto sizes = read_layout_entry(pickle, shape);
  const auto strides = read_layout_entry(pickle, stride);
  if (!sizes || !strides || sizes->size() != strides->size()) return std::nullopt;
  MeshDimension dimension;
  for (std::size_t i = 0; i < sizes->size(); ++i) {
    dimension.emplace_back((*sizes)[i], (*strides)[i]);
  }
  return dimension;
}

/// The elements of a tuple, or of the torch.Size that a mesh has which was made of a tensor of
/// ranks.
std::span<const Pickle::NodeId> elements_of(const Pickle& pickle, Pickle::NodeId node) {
  if (pickle.is_object(node, PickleGlobal::kSize) && pickle.arguments(node).size() == 1) {
    node = pickle.arguments(node)[0];
  }
  return pickle.kind(node) == PickleKind::kTuple ? pickle.items(node)
                                                 : std::span<const Pickle::NodeId>{};
}

/// Shape and stride of each dimension, as nodes. _MeshLayout of torch 2.10 to 2.12 is {shape,
/// stride}, either of which may be a plain integer for one dimension; from 2.13 on {axes}, of
/// _FlatLayout{shape, stride}, both empty where the dimension has one rank.
std::optional<std::vector<std::pair<Pickle::NodeId, Pickle::NodeId>>> dimension_nodes(
    const Pickle& pickle, Pickle::NodeId layout) {
  const auto field = [&](Pickle::NodeId object, std::string_view name) {
    const auto state = pickle.state(object);
    return state ? pickle.find(*state, name) : std::nullopt;
  };
  std::vector<std::pair<Pickle::NodeId, Pickle::NodeId>> nodes;
  if (const auto axes = field(layout, "axes")) {
    if (pickle.items(*axes).size() > kMaxMeshDimensions) return std::nullopt;
    for (const Pickle::NodeId axis : pickle.items(*axes)) {
      const bool flat = pickle.is_object(axis, PickleGlobal::kFlatLayout);
      const auto shape = flat ? field(axis, "shape") : std::nullopt;
      const auto stride = flat ? field(axis, "stride") : std::nullopt;
      if (!shape || !stride) return std::nullopt;
      nodes.emplace_back(*shape, *stride);
    }
    return nodes;
  }
  const auto shape = field(layout, "shape");
  const auto stride = field(layout, "stride");
  if (!shape || !stride) return std::nullopt;
  if (pickle.kind(*shape) == PickleKind::kInteger) {
    nodes.emplace_back(*shape, *stride);
    return nodes;
  }
  const auto sizes = elements_of(pickle, *shape);
  const auto strides = elements_of(pickle, *stride);
  if (sizes.size() > kMaxMeshDimensions || sizes.size() != strides.size()) return std::nullopt;
  for (std::size_t d = 0; d < sizes.size(); ++d) nodes.emplace_back(sizes[d], strides[d]);
  return nodes;
}

}  // namespace

std::optional<std::vector<MeshDimension>> read_mesh_layout(const Pickle& pickle,
                                                           Pickle::NodeId node) {
  if (!pickle.is_object(node, PickleGlobal::kMeshLayout)) return std::nullopt;
  const auto nodes = dimension_nodes(pickle, node);
  if (!nodes) return std::nullopt;
  std::vector<MeshDimension> dimensions;
  for (const auto& [shape, stride] : *nodes) {
    auto dimension = read_dimension(pickle, shape, stride);
    if (!dimension) return std::nullopt;
    dimensions.push_back(*std::move(dimension));
  }
  return dimensions;
}

std::vector<std::int64_t> coordinate_of(std::int64_t index,
                                        const std::vector<MeshDimension>& layout) {
  std::vector<std::int64_t> coordinate;
  for (const MeshDimension& dimension : layout) {
    std::int64_t value = 0;
    for (const auto& [size, stride] : dimension) {
      value = value * size + (stride > 0 ? index / stride % size : 0);
    }
    coordinate.push_back(value);
  }
  return coordinate;
}

}  // namespace evalcar::checkpoint
