#include "store/checkpoint/deepspeed_model.h"

#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::size_t kMaxParameterDimensions = 8;
constexpr std::size_t kMostHeldBytes = std::size_t{40} << 20U;

Result<std::vector<std::string>> model_files(const std::string& folder, const DeepspeedFiles& found,
                                             std::int64_t stage, std::size_t ranks) {
  if (stage != 3) {
    if (found.model.empty()) {
      return make_error(ErrorCode::kUnavailable,
                        folder + ": mp_rank_00_model_states.pt is missing");
    }
    return std::vector<std::string>{found.model};
  }
  if (found.rank_models.size() < ranks) {
    return make_error(ErrorCode::kUnavailable, folder + ": the model state of rank " +
                                                   std::to_string(found.rank_models.size()) +
                                                   " is missing");
  }
  if (found.rank_models.size() > ranks) {
    return make_error(ErrorCode::kCorruption,
                      folder + ": holds more model states than optimizer states");
  }
  return found.rank_models;
}

}  // namespace

Result<DeepspeedModel> DeepspeedModel::read(DeepspeedStates& states, const DeepspeedFiles& found,
                                            std::int64_t stage, std::size_t ranks) {
  EVALCAR_ASSIGN_OR_RETURN(const auto names, model_files(states.folder(), found, stage, ranks));
  DeepspeedModel model;
  // They are held all at once: each may take the allowance of one pickle, together they may not.
  std::size_t held = 0;
  std::uint64_t described = 0;
  for (const std::string& name : names) {
    EVALCAR_ASSIGN_OR_RETURN(DeepspeedState state, states.open(name));
    held += state.torch_file.pickle.memory_bytes();
    described += state.torch_file.description_bytes();
    if (held > kMostHeldBytes + 4 * described) {
      return make_error(ErrorCode::kCorruption,
                        state.torch_file.where + ": too many objects" + state.torch_file.place());
    }
    model.files_.push_back(std::move(state));
  }
  EVALCAR_RETURN_IF_ERROR(model.read_shapes());
  return model;
}

std::optional<Pickle::NodeId> DeepspeedModel::value(const char* key) const {
  const auto node = pickle().find(pickle().root(), key);
  return node && pickle().kind(*node) != PickleKind::kNone ? node : std::nullopt;
}

Result<DeepspeedParameter> DeepspeedModel::parameter(NodeId key, NodeId shape) const {
  const auto sizes = read_sizes(pickle(), shape, kMaxParameterDimensions);
  if (pickle().kind(key) != PickleKind::kText || !sizes) {
    return corrupt("a parameter without name or shape");
  }
  DeepspeedParameter found{std::string(pickle().text(key)), *sizes, 0};
  const auto elements = checked_elements(found.shape);
  if (!elements) {
    return corrupt("parameter " + quote_name(found.name) + " has too large a shape " +
                   shape_text(found.shape));
  }
  found.elements = *elements;
  return found;
}

Status DeepspeedModel::add_parameters(NodeId dict, std::set<std::string_view>& names,
                                      std::vector<DeepspeedParameter>& parameters) const {
  const auto pairs = pickle().items(dict);
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    // Before anything is copied: a pickle can name one text any number of times.
    if (pickle().kind(pairs[i]) == PickleKind::kText &&
        !names.insert(pickle().text(pairs[i])).second) {
      return corrupt("parameter " + quote_name(pickle().text(pairs[i])) + " comes twice");
    }
    if (names.size() > kMaxDeepspeedParameters) return corrupt("too many parameters");
    EVALCAR_ASSIGN_OR_RETURN(DeepspeedParameter each, parameter(pairs[i], pairs[i + 1]));
    parameters.push_back(std::move(each));
  }
  return {};
}

Result<std::vector<DeepspeedParameter>> DeepspeedModel::parameters_of(NodeId dict) const {
  std::set<std::string_view> names;
  std::vector<DeepspeedParameter> parameters;
  EVALCAR_RETURN_IF_ERROR(add_parameters(dict, names, parameters));
  return parameters;
}

Status DeepspeedModel::read_shapes() {
  for (const char* const key : {"ds_autoep_layers", "autoep_layers"}) {
    if (const auto layers = value(key); layers && !pickle().items(*layers).empty()) {
      return make_error(ErrorCode::kUnsupported,
                        path() + ": has AutoEP's expert layers, which are not read");
    }
  }
  const auto shapes = value("param_shapes");
  if (!shapes || !is_sequence(pickle(), *shapes)) {
    return corrupt("has no list param_shapes");
  }
  const auto dicts = pickle().items(*shapes);
  if (dicts.size() > kMaxDeepspeedGroups) return corrupt("too many groups in param_shapes");
  std::set<std::string_view> names;
  for (const NodeId group : dicts) {
    if (pickle().kind(group) != PickleKind::kDict) {
      return corrupt("param_shapes is no list of dicts");
    }
    EVALCAR_RETURN_IF_ERROR(add_parameters(group, names, groups_.emplace_back()));
  }
  return {};
}

std::map<std::string_view, Pickle::NodeId> DeepspeedModel::values_of(const Pickle& pickle,
                                                                     NodeId dict) {
  std::map<std::string_view, NodeId> values;
  if (pickle.kind(dict) != PickleKind::kDict) return values;
  const auto pairs = pickle.items(dict);
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pickle.kind(pairs[i]) == PickleKind::kText) {
      values[pickle.text(pairs[i])] = pairs[i + 1];
    }
  }
  return values;
}

}  // namespace evalcar::checkpoint
