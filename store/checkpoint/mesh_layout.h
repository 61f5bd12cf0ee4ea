// How the ranks of a DeviceMesh lie in its list of ranks, as torch 2.10 and later tell it.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "store/checkpoint/pickle.h"

namespace evalcar::checkpoint {

constexpr std::size_t kMaxMeshDimensions = 16;

/// One dimension of a mesh as pairs of (size, stride into the rank map); several where dimensions
/// were flattened into one, none where it has one rank.
using MeshDimension = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Of a _MeshLayout; absent for any other object, and for one of an unknown form. Sizes and strides
/// are not negative, and otherwise as stated.
std::optional<std::vector<MeshDimension>> read_mesh_layout(const Pickle& pickle,
                                                           Pickle::NodeId node);

/// The coordinate that a layout gives to place `index` of the rank map: each size is a digit of it.
std::vector<std::int64_t> coordinate_of(std::int64_t index,
                                        const std::vector<MeshDimension>& layout);

}  // namespace evalcar::checkpoint
