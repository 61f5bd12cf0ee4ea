#include "store/checkpoint/deepspeed_optimizer.h"

#include <algorithm>
#include <array>

#include "store/checkpoint/convert.h"

namespace evalcar::checkpoint {
namespace {

using NodeId = Pickle::NodeId;

Error corrupt(const std::string& where, const std::string& what) {
  return make_error(ErrorCode::kCorruption, where + ": " + what);
}

/// An integer, ZeroStageEnum(n), or getattr(ZeroStageEnum, name).
Result<std::int64_t> read_stage(const DeepspeedState& state, NodeId node) {
  const Pickle& pickle = state.torch_file.pickle;
  if (pickle.is_object(node, PickleGlobal::kGetattr)) {
    constexpr std::array<std::string_view, 3> kNames = {"optimizer_states", "gradients", "weights"};
    const auto found =
        std::find(kNames.begin(), kNames.end(), pickle.text(pickle.arguments(node)[1]));
    if (found != kNames.end()) return found - kNames.begin() + 1;
  }
  if (pickle.is_object(node, PickleGlobal::kDeepspeedZeroStage)) {
    const auto arguments = pickle.arguments(node);
    if (arguments.size() == 1) node = arguments[0];
  }
  if (pickle.kind(node) != PickleKind::kInteger || pickle.integer(node) < 1 ||
      pickle.integer(node) > 3) {
    return corrupt(state.torch_file.where, "zero_stage is not 1, 2 or 3");
  }
  return pickle.integer(node);
}

/// One number, or one for each group; they differ only under expert parallelism.
Result<std::int64_t> read_partitions(const DeepspeedState& state, NodeId dict) {
  const Pickle& pickle = state.torch_file.pickle;
  const auto node = pickle.find(dict, "partition_count");
  std::optional<std::int64_t> count;
  if (node && pickle.kind(*node) == PickleKind::kInteger) count = pickle.integer(*node);
  if (node && is_sequence(pickle, *node)) {
    for (const NodeId each : pickle.items(*node)) {
      if (pickle.kind(each) != PickleKind::kInteger) {
        return corrupt(state.torch_file.where, "partition_count is no list of integers");
      }
      if (count && *count != pickle.integer(each)) {
        return make_error(ErrorCode::kUnsupported,
                          state.torch_file.where +
                              ": its groups have different numbers of partitions (expert "
                              "parallelism), which is not read");
      }
      count = pickle.integer(each);
    }
  }
  if (!count || *count < 1) return corrupt(state.torch_file.where, "has no partition_count");
  return *count;
}

Status read_paddings(const DeepspeedState& state, NodeId dict, DeepspeedOptimizer& optimizer) {
  const Pickle& pickle = state.torch_file.pickle;
  const auto node = pickle.find(dict, "param_alignment_paddings");
  if (!node || pickle.kind(*node) == PickleKind::kNone) return {};
  if (!is_sequence(pickle, *node)) {
    return corrupt(state.torch_file.where, "param_alignment_paddings is no list");
  }
  const auto lists = pickle.items(*node);
  if (lists.size() != optimizer.groups.size()) {
    return corrupt(state.torch_file.where,
                   "param_alignment_paddings has not one list for each group");
  }
  std::size_t left = kMaxDeepspeedParameters;  // the lists may be one list, many times
  for (const NodeId group : lists) {
    auto paddings = read_sizes(pickle, group, left);
    if (!paddings) {
      return corrupt(state.torch_file.where,
                     "param_alignment_paddings is no list of lists of sizes, or they are too many");
    }
    left -= paddings->size();
    optimizer.paddings.push_back(*std::move(paddings));
  }
  return {};
}

Result<DeepspeedOptimizer> read_optimizer(DeepspeedStates& states, const DeepspeedState& state) {
  const Pickle& pickle = state.torch_file.pickle;
  const std::string& where = state.torch_file.where;
  const auto dict = pickle.find(pickle.root(), "optimizer_state_dict");
  const auto stage = dict ? pickle.find(*dict, "zero_stage") : std::nullopt;
  if (!stage) {
    return make_error(ErrorCode::kUnsupported,
                      where + ": has no zero_stage, expected the optimizer state of ZeRO");
  }
  DeepspeedOptimizer optimizer;
  optimizer.file = state.index;
  EVALCAR_ASSIGN_OR_RETURN(optimizer.stage, read_stage(state, *stage));
  EVALCAR_ASSIGN_OR_RETURN(optimizer.partitions, read_partitions(state, *dict));
  const char* const key =
      optimizer.stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
  const auto groups = pickle.find(*dict, key);
  if (!groups || !is_sequence(pickle, *groups)) {
    return corrupt(where, "has no list " + std::string(key));
  }
  if (pickle.items(*groups).size() > kMaxDeepspeedGroups) {
    return corrupt(where, std::string(key) + " holds more than " +
                              std::to_string(kMaxDeepspeedGroups) + " groups");
  }
  for (const NodeId group : pickle.items(*groups)) {
    const std::string name = std::string(key) + "[" + std::to_string(optimizer.groups.size()) + "]";
    EVALCAR_ASSIGN_OR_RETURN(StoredTensor tensor, states.stored(state, group, name));
    if (tensor.size.size() != 1 || (tensor.size[0] > 1 && tensor.stride[0] != 1)) {
      return state.torch_file.corrupt(name, "is no flat vector");
    }
    if (!is_convertible(tensor.dtype)) {
      return state.torch_file.corrupt(
          name, "is " + std::string(dtype_name(tensor.dtype)) + ", expected a floating type");
    }
    states.budget().take_found(1);
    if (states.budget().is_spent()) return state.torch_file.corrupt(name, PlanBudget::kTooMuch);
    optimizer.groups.push_back(std::move(tensor));
  }
  EVALCAR_RETURN_IF_ERROR(read_paddings(state, *dict, optimizer));
  return optimizer;
}

}  // namespace

Result<std::vector<DeepspeedOptimizer>> read_deepspeed_optimizers(
    DeepspeedStates& states, const std::vector<std::string>& names) {
  std::vector<DeepspeedOptimizer> optimizers;
  for (const std::string& name : names) {
    EVALCAR_ASSIGN_OR_RETURN(const DeepspeedState state, states.open(name));
    EVALCAR_ASSIGN_OR_RETURN(DeepspeedOptimizer optimizer, read_optimizer(states, state));
    if (!optimizers.empty()) optimizer.paddings.clear();  // those of rank 0 are used
    optimizers.push_back(std::move(optimizer));
    const DeepspeedOptimizer& first = optimizers.front();
    const DeepspeedOptimizer& last = optimizers.back();
    if (last.stage != first.stage || last.partitions != first.partitions ||
        last.groups.size() != first.groups.size()) {
      return corrupt(state.torch_file.where,
                     "stage, number of partitions or groups differ from those of rank 0");
    }
    for (std::size_t g = 0; g < last.groups.size(); ++g) {
      if (last.groups[g].dtype != first.groups[g].dtype) {
        return corrupt(state.torch_file.where, "a group's dtype differs from rank 0's");
      }
    }
  }
  const auto ranks = static_cast<std::int64_t>(optimizers.size());
  if (optimizers[0].partitions != ranks) {
    const std::string counts = std::to_string(ranks) + " *_optim_states.pt, expected " +
                               std::to_string(optimizers[0].partitions);
    if (optimizers[0].partitions > ranks) {
      return make_error(ErrorCode::kUnavailable, states.folder() + ": holds " + counts);
    }
    return corrupt(states.folder(), "holds " + counts + " (some of an older checkpoint?)");
  }
  return optimizers;
}

}  // namespace evalcar::checkpoint
