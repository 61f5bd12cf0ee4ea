#include "store/checkpoint/dcp_names.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace evalcar::checkpoint {
namespace {

constexpr std::array<std::string_view, 3> kModelTrees = {"model", "model_state_dict", "state_dict"};
constexpr std::array<std::string_view, 23> kTrainerTrees = {"optim",
                                                            "optims",
                                                            "optimizer",
                                                            "optimizers",
                                                            "optim_state",
                                                            "optimizer_state",
                                                            "optim_state_dict",
                                                            "optimizer_state_dict",
                                                            "scheduler",
                                                            "schedulers",
                                                            "lr_scheduler",
                                                            "lr_schedulers",
                                                            "dataloader",
                                                            "dataloaders",
                                                            "dataloader_state",
                                                            "train_state",
                                                            "trainer_state",
                                                            "rng",
                                                            "rng_state",
                                                            "rng_states",
                                                            "random_states",
                                                            "lr_scheduler_state_dict",
                                                            "grad_scaler"};
/// Loose tensors that count what a trainer has done.
constexpr std::array<std::string_view, 6> kCounters = {"step",  "global_step", "steps",
                                                       "epoch", "iteration",   "iter"};
/// What optimizers call the tensors that they keep for a parameter.
constexpr std::array<std::string_view, 14> kMoments = {"exp_avg",
                                                       "exp_avg_sq",
                                                       "max_exp_avg_sq",
                                                       "exp_avg_sq_row",
                                                       "exp_avg_sq_col",
                                                       "exp_inf",
                                                       "momentum_buffer",
                                                       "square_avg",
                                                       "grad_avg",
                                                       "acc_delta",
                                                       "sum",
                                                       "state1",
                                                       "state2",
                                                       "prev"};
/// Deeper is no tree of a trainer's.
constexpr std::size_t kMaxLevels = 16;

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// "optimizer", "optimizer_0": several of them are numbered.
bool has_trainer_name(std::string_view name) {
  const std::size_t end = name.find_last_not_of("0123456789");
  if (end != std::string_view::npos && end + 1 < name.size() && name[end] == '_') {
    name = name.substr(0, end);
  }
  return is_one_of(name, kTrainerTrees);
}

bool begins_with(const DcpPath& path, const DcpPath& prefix) {
  return path.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), path.begin());
}

/// What is known of a tree by the paths in it.
struct Content {
  bool only_states = true;  ///< nothing but "state" and "param_groups"
  bool has_moments = false;

  /// `path` leads on at `level`, below the tree.
  void add(const DcpPath& path, std::size_t level) {
    const std::string_view first = path[level];
    // A flattened state_dict has whole keys: "state.layers.0.weight.exp_avg".
    const bool state = first == "state" || first.starts_with("state.");
    only_states &= state || first == "param_groups" || first.starts_with("param_groups.");
    // state.<parameter>.<moment>, or all of it as one flattened key.
    const std::string_view last = path.back();
    const bool flat = path.size() == level + 1;
    has_moments |= state && (flat || path.size() == level + 3) &&
                   is_one_of(last.substr(flat ? last.rfind('.') + 1 : 0), kMoments);
  }
  bool is_optimizer() const { return only_states && has_moments; }
};

/// Where the weights are, and the trees of trainers beside the way there.
struct Way {
  DcpPath prefix;
  bool to_model = false;       ///< `prefix` is the tree of the weights
  std::set<DcpPath> trainers;  ///< paths of trees
};

Way find_way(std::span<const DcpPath> paths) {
  Way way;
  while (way.prefix.size() < kMaxLevels) {
    const std::size_t level = way.prefix.size();
    std::map<std::string_view, Content> trees;
    bool has_tensor = false;
    for (const DcpPath& path : paths) {
      if (!begins_with(path, way.prefix)) continue;
      if (path.size() == level + 1) {
        has_tensor = has_tensor || !has_trainer_name(path.back());
      } else {
        trees[path[level]].add(path, level + 1);
      }
    }
    for (auto tree = trees.begin(); tree != trees.end();) {
      const bool trainer = has_trainer_name(tree->first) || tree->second.is_optimizer();
      if (trainer) {
        DcpPath whole = way.prefix;
        whole.push_back(tree->first);
        way.trainers.insert(std::move(whole));
      }
      tree = trainer ? trees.erase(tree) : std::next(tree);
    }
    for (const std::string_view name : kModelTrees) {
      if (!trees.contains(name)) continue;
      way.prefix.emplace_back(name);
      way.to_model = true;
      return way;
    }
    if (has_tensor || trees.size() != 1) return way;
    way.prefix.emplace_back(trees.begin()->first);
  }
  return way;
}

/// The part of a path that leaves the way: a tree, or the tensor itself.
DcpPath branch_of(const DcpPath& path, const DcpPath& way) {
  const auto [end, unused] = std::mismatch(path.begin(), path.end(), way.begin(), way.end());
  return {path.begin(), end == path.end() ? end : std::next(end)};
}

std::string joined(const DcpPath& path, std::size_t first) {
  std::string name;
  for (std::size_t i = first; i < path.size(); ++i) {
    if (i > first) name += '.';
    name += path[i];
  }
  return name;
}

}  // namespace

DcpNames dcp_weight_names(std::span<const DcpPath> paths) {
  const Way way = find_way(paths);
  DcpNames names;
  std::set<std::string> left_out;
  for (const DcpPath& path : paths) {
    const DcpPath branch = branch_of(path, way.prefix);
    const bool is_tree = branch.size() < path.size();
    const bool is_trainers = is_tree && way.trainers.contains(branch);
    const bool is_weight = way.to_model ? begins_with(path, way.prefix) : !is_trainers;
    names.of.push_back(is_weight ? std::optional(joined(path, way.to_model ? way.prefix.size() : 0))
                                 : std::nullopt);
    if (is_weight || is_trainers) continue;
    const std::string_view name = branch.back();
    if (is_tree || !(has_trainer_name(name) || is_one_of(name, kCounters))) {
      left_out.insert(joined(branch, 0));
    }
  }
  names.left_out.assign(left_out.begin(), left_out.end());
  return names;
}

}  // namespace evalcar::checkpoint
