#include "store/checkpoint/dcp_names.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

namespace evalcar::checkpoint {
namespace {

constexpr std::array<std::string_view, 3> kModelTrees = {"model", "model_state_dict", "state_dict"};
constexpr std::array<std::string_view, 6> kTrainerTrees = {
    "optim", "lr_scheduler", "scheduler", "dataloader", "train_state", "rng"};

bool is_trainer_tree(std::string_view name) {
  return std::any_of(kTrainerTrees.begin(), kTrainerTrees.end(),
                     [&](std::string_view tree) { return name.starts_with(tree); });
}

bool begins_with(const DcpPath& path, const DcpPath& prefix) {
  return path.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), path.begin());
}

/// The path of the tree that holds the weights; empty: no tree does.
DcpPath model_tree(std::span<const DcpPath> paths) {
  DcpPath prefix;
  for (int level = 0; level < 2; ++level) {
    std::set<std::string_view> trees;
    bool has_tensor = false;
    for (const DcpPath& path : paths) {
      if (!begins_with(path, prefix)) continue;
      if (path.size() == prefix.size() + 1) {
        has_tensor = has_tensor || !is_trainer_tree(path.back());
      } else if (!is_trainer_tree(path[prefix.size()])) {
        trees.insert(path[prefix.size()]);
      }
    }
    for (const std::string_view name : kModelTrees) {
      if (!trees.contains(name)) continue;
      prefix.emplace_back(name);
      return prefix;
    }
    if (has_tensor || trees.size() != 1) return {};
    prefix.emplace_back(*trees.begin());
  }
  return {};
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

std::vector<std::optional<std::string>> dcp_weight_names(std::span<const DcpPath> paths) {
  const DcpPath tree = model_tree(paths);
  std::vector<std::optional<std::string>> names;
  for (const DcpPath& path : paths) {
    const bool is_weight =
        tree.empty() ? !is_trainer_tree(path[0]) || path.size() == 1 : begins_with(path, tree);
    names.push_back(is_weight ? std::optional(joined(path, tree.size())) : std::nullopt);
  }
  return names;
}

}  // namespace evalcar::checkpoint
