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

struct DcpNames {
  /// The name of each tensor, or nothing where it is no weight.
  std::vector<std::optional<std::string>> of;
  /// Trees and tensors beside the model's that are no trainer's state as far as can be told (a
  /// second model, a value head): their paths, sorted.
  std::vector<std::string> left_out;
};

/// - A tree `model` (also `model_state_dict`, `state_dict`) holds the weights: its name is removed,
///   and everything beside it is left out. So it is further down, below trees that stand alone
///   ({"app": {"model": …, "optim": …}}, as an application's Stateful gives).
/// - Else every tensor is a weight, under the key as stored, but those of a trainer's trees beside
///   it.
/// - A tree is a trainer's if it is an optimizer's state by its content
/// (`state.<parameter>.exp_avg`
///   and the like, `param_groups`, and nothing else), or has one of the names that trainers give
///   ("optimizer", "lr_scheduler", "dataloader", "rng_state" …; also numbered: "optimizer_0").
///
/// Wrappers' names stay: tensor_names.h.
DcpNames dcp_weight_names(std::span<const DcpPath> paths);

}  // namespace evalcar::checkpoint
