// Which entries of a torch.distributed.checkpoint are the weights of the model, and their names.
//
// A DCP stores any nested state: `{"model": state_dict, "optimizer": …}` becomes flat keys
// ("model.layers.0.q.weight") beside a path for each (planner_data). Names of modules hold dots
// themselves, so only the path tells where the tree ends and the name begins.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evalcar::checkpoint {

/// Of one tensor; at least one component. The texts are the caller's.
using DcpPath = std::vector<std::string_view>;

/// The name of each tensor, or nothing where it is no weight.
///
/// - A tree `model` (also `model_state_dict`, `state_dict`) holds the weights: its name is removed,
///   and everything beside it is ignored. So it is one level down, below a tree that stands alone
///   ({"app": {"model": …, "optim": …}}, as an application's Stateful gives).
/// - Else every tensor is a weight, under the key as stored, but those of trees that only a trainer
///   has: names that begin with "optim", "lr_scheduler", "scheduler", "dataloader", "train_state",
///   "rng".
///
/// Wrappers' names stay: tensor_names.h.
std::vector<std::optional<std::string>> dcp_weight_names(std::span<const DcpPath> paths);

}  // namespace evalcar::checkpoint
