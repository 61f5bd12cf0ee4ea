#include "store/checkpoint/deepspeed_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "store/checkpoint/convert.h"
#include "store/checkpoint/deepspeed_model.h"
#include "store/checkpoint/deepspeed_optimizer.h"
#include "store/checkpoint/flat_tensor.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/tensor_names.h"

namespace evalcar::checkpoint {
namespace {

using NodeId = Pickle::NodeId;

class Builder {
 public:
  Builder(const FileSystem& files, const Folder& folder, const DeepspeedFiles& found)
      : folder_(folder), found_(found), states_(files, folder, plan_) {}

  Result<Plan> build() {
    EVALCAR_ASSIGN_OR_RETURN(optimizers_, read_deepspeed_optimizers(states_, found_.optimizers));
    EVALCAR_ASSIGN_OR_RETURN(model_,
                             DeepspeedModel::read(states_, found_, stage(), optimizers_.size()));
    EVALCAR_RETURN_IF_ERROR(add_buffers());
    EVALCAR_RETURN_IF_ERROR(add_frozen());
    EVALCAR_RETURN_IF_ERROR(stage() == 3 ? add_stage3() : add_stage12());
    EVALCAR_RETURN_IF_ERROR(add_shared());
    if (stage() != 3) EVALCAR_RETURN_IF_ERROR(add_rest_of_module());
    for (TensorPlan& tensor : plan_.tensors) {
      if (Status tiled = check_tiling(tensor); !tiled.has_value()) {
        return make_error(tiled.error().code, folder_.path + ": " + tiled.error().message);
      }
    }
    if (plan_.tensors.empty()) {
      return make_error(ErrorCode::kCorruption, folder_.path + ": holds no tensor");
    }
    if (Status sorted = settle_names(plan_); !sorted.has_value()) {
      return make_error(sorted.error().code, folder_.path + ": " + sorted.error().message);
    }
    find_ties(plan_);
    states_.add_records();
    plan_.layout = Layout::kDeepspeedZero;
    plan_.world_size = static_cast<int>(optimizers_.size());
    return std::move(plan_);
  }

 private:
  std::int64_t stage() const { return optimizers_[0].stage; }

  Error corrupt(const std::string& where, const std::string& what) const {
    return make_error(ErrorCode::kCorruption, where + ": " + what);
  }

  static Piece whole_piece(std::size_t file, const StoredTensor& tensor) {
    return Piece{file, tensor.file_offset, std::vector<std::int64_t>(tensor.size.size(), 0),
                 tensor.size, tensor.stride};
  }

  Status add_buffers() {
    const Pickle& pickle = model_.pickle();
    const auto names = model_.value("buffer_names");
    if (!names) return corrupt(model_.path(), "has no buffer_names, expected a ZeRO model state");
    const auto module = model_.value("module");
    const auto values = module ? DeepspeedModel::values_of(pickle, *module)
                               : DeepspeedModel::values_of(pickle, pickle.root());
    std::set<std::string_view> seen;
    for (const NodeId name : pickle.items(*names)) {
      if (pickle.kind(name) != PickleKind::kText) {
        return corrupt(model_.path(), "buffer_names is no list of names");
      }
      const auto found = values.find(pickle.text(name));
      if (found == values.end() || !seen.insert(found->first).second) continue;  // not persistent
      TensorPlan tensor;
      tensor.name = found->first;
      if (is_extra_state(tensor.name)) {
        plan_.extra_states.push_back(tensor.name);
        continue;
      }
      EVALCAR_ASSIGN_OR_RETURN(const StoredTensor buffer,
                               states_.stored(model_.first(), found->second, tensor.name));
      tensor.dtype = buffer.dtype;
      tensor.shape = buffer.size;
      // zero_to_fp32 makes every floating buffer float32.
      if (is_convertible(buffer.dtype) && buffer.dtype != DType::kFloat32) {
        tensor.dtype = DType::kFloat32;
        tensor.stored_dtype = buffer.dtype;
      }
      if (tensor.elements() > 0) tensor.pieces.push_back(whole_piece(model_.first().index, buffer));
      EVALCAR_RETURN_IF_ERROR(add(std::move(tensor)));
    }
    return {};
  }

  Status add_frozen() {
    const auto shapes = model_.value("frozen_param_shapes");
    if (!shapes) return {};
    EVALCAR_ASSIGN_OR_RETURN(const std::vector<DeepspeedParameter> parameters,
                             model_.parameters_of(*shapes));
    std::vector<std::map<std::string_view, NodeId>> fragments;
    for (const DeepspeedState& state : model_.files()) {
      const Pickle& pickle = state.torch_file.pickle;
      const auto dict = pickle.find(pickle.root(), "frozen_param_fragments");
      fragments.push_back(dict ? DeepspeedModel::values_of(pickle, *dict)
                               : std::map<std::string_view, NodeId>());
    }
    for (const DeepspeedParameter& parameter : parameters) {
      EVALCAR_ASSIGN_OR_RETURN(TensorPlan tensor, frozen(parameter, fragments));
      EVALCAR_RETURN_IF_ERROR(add_counted(std::move(tensor)));
    }
    return {};
  }

  /// Stage 1 and 2: the tensor itself. Stage 3: flat parts, one of each rank, the last ones padded.
  Result<TensorPlan> frozen(const DeepspeedParameter& parameter,
                            const std::vector<std::map<std::string_view, NodeId>>& fragments) {
    TensorPlan tensor;
    tensor.name = parameter.name;
    tensor.shape = parameter.shape;
    FlatVector flat;
    for (std::size_t i = 0; i < model_.files().size(); ++i) {
      const auto found = fragments[i].find(parameter.name);
      const TorchFile& file = model_.files()[i].torch_file;
      if (found == fragments[i].end()) {
        return file.corrupt(parameter.name, "is frozen, but has no fragment");
      }
      EVALCAR_ASSIGN_OR_RETURN(const StoredTensor fragment,
                               states_.stored(model_.files()[i], found->second, parameter.name));
      if (i > 0 && fragment.dtype != tensor.dtype) {
        return file.corrupt(parameter.name, "has fragments of two dtypes");
      }
      tensor.dtype = fragment.dtype;
      if (stage() != 3) {
        if (fragment.size != parameter.shape) {
          return file.corrupt(parameter.name, "has shape " + shape_text(fragment.size) +
                                                  ", expected " + shape_text(parameter.shape));
        }
        if (parameter.elements > 0) {
          tensor.pieces.push_back(whole_piece(model_.files()[i].index, fragment));
          states_.budget().take(tensor.pieces.back());
        }
        return tensor;
      }
      if (fragment.size.size() != 1 || (fragment.size[0] > 1 && fragment.stride[0] != 1)) {
        return file.corrupt(parameter.name, "has a fragment that is no flat vector");
      }
      EVALCAR_RETURN_IF_ERROR(located(append(flat, fragment, model_.files()[i].index)));
    }
    EVALCAR_RETURN_IF_ERROR(
        located(flat.add_pieces(tensor, 0, 0, parameter.elements, states_.budget())));
    return tensor;
  }

  static Status append(FlatVector& flat, const StoredTensor& part, std::size_t file) {
    return flat.append(static_cast<std::uint64_t>(part.size[0]), part.dtype, file,
                       part.file_offset);
  }

  Status located(Status status) const {
    if (status.has_value()) return status;
    return make_error(status.error().code, folder_.path + ": " + status.error().message);
  }

  // ---- the trainable parameters

  TensorPlan trainable(const DeepspeedParameter& parameter, DType dtype) const {
    TensorPlan tensor;
    tensor.name = parameter.name;
    tensor.dtype = dtype;
    tensor.shape = parameter.shape;
    return tensor;
  }

  Status add_stage12() {
    if (model_.groups().size() != optimizers_[0].groups.size()) {
      return corrupt(folder_.path, "param_shapes has " + std::to_string(model_.groups().size()) +
                                       " groups, the optimizer states " +
                                       std::to_string(optimizers_[0].groups.size()));
    }
    for (std::size_t g = 0; g < model_.groups().size(); ++g) {
      FlatVector flat;
      for (const DeepspeedOptimizer& optimizer : optimizers_) {
        EVALCAR_RETURN_IF_ERROR(located(append(flat, optimizer.groups[g], optimizer.file)));
      }
      const auto& paddings = optimizers_[0].paddings;
      if (!paddings.empty() && paddings[g].size() != model_.groups()[g].size()) {
        return corrupt(folder_.path, "group " + std::to_string(g) +
                                         " has not one alignment padding for each parameter");
      }
      std::uint64_t place = 0;
      for (std::size_t p = 0; p < model_.groups()[g].size(); ++p) {
        TensorPlan tensor = trainable(model_.groups()[g][p], optimizers_[0].groups[g].dtype);
        EVALCAR_RETURN_IF_ERROR(located(
            flat.add_pieces(tensor, 0, place, model_.groups()[g][p].elements, states_.budget())));
        EVALCAR_RETURN_IF_ERROR(add_counted(std::move(tensor)));
        place += model_.groups()[g][p].elements;  // within the vector: add_pieces has seen to it
        if (!paddings.empty()) place += static_cast<std::uint64_t>(paddings[g][p]);
        if (place > static_cast<std::uint64_t>(INT64_MAX)) {
          return corrupt(folder_.path, "an alignment padding is too large");
        }
      }
      // The vector's end is aligned to twice the number of ranks.
      const std::uint64_t align = 2 * optimizers_.size();
      const auto aligned = [&](std::uint64_t n) { return (n + align - 1) / align; };
      if (aligned(place) != aligned(flat.size())) {
        return corrupt(folder_.path, "the parameters of group " + std::to_string(g) + " take " +
                                         std::to_string(place) + " of " +
                                         std::to_string(flat.size()) + " elements");
      }
    }
    return {};
  }

  Status add_stage3() {
    const std::uint64_t ranks = optimizers_.size();
    std::vector<FlatVector> flats(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      for (const StoredTensor& group : optimizers_[r].groups) {
        EVALCAR_RETURN_IF_ERROR(located(append(flats[r], group, optimizers_[r].file)));
      }
      if (flats[r].size() != flats[0].size()) {
        return corrupt(folder_.path, "the flat vectors of rank " + std::to_string(r) +
                                         " have another length than those of rank 0");
      }
    }
    std::uint64_t place = 0;
    for (const std::vector<DeepspeedParameter>& group : model_.groups()) {
      for (const DeepspeedParameter& parameter : group) {
        EVALCAR_RETURN_IF_ERROR(add_partitioned(parameter, flats, place));
      }
    }
    if (place != flats[0].size()) {
      return corrupt(folder_.path, "the parameters take " + std::to_string(place) + " of " +
                                       std::to_string(flats[0].size()) + " elements of a rank");
    }
    return {};
  }

  /// Rank r holds the elements [r · part, (r + 1) · part) of the flattened parameter.
  Status add_partitioned(const DeepspeedParameter& parameter, const std::vector<FlatVector>& flats,
                         std::uint64_t& place) {
    const std::uint64_t ranks = flats.size();
    const std::uint64_t part = parameter.elements / ranks + (parameter.elements % ranks != 0);
    if (optimizers_[0].groups.empty()) {
      return corrupt(folder_.path, "has parameters, but no flat vector");
    }
    TensorPlan tensor = trainable(parameter, optimizers_[0].groups[0].dtype);
    if (part > flats[0].size() - place) {
      return corrupt(folder_.path,
                     "the flat vectors end before parameter " + quote_name(parameter.name));
    }
    for (std::uint64_t r = 0; r < ranks; ++r) {
      const std::uint64_t begin = std::min(r * part, parameter.elements);
      const std::uint64_t count = std::min(part, parameter.elements - begin);
      EVALCAR_RETURN_IF_ERROR(
          located(flats[r].add_pieces(tensor, begin, place, count, states_.budget())));
    }
    place += part;
    return add_counted(std::move(tensor));
  }

  /// `shared_params`: name that is not stored → name that is; a dict, or a list of such pairs.
  Status add_shared() {
    const auto shared = model_.value("shared_params");
    if (!shared) return {};
    const Pickle& pickle = model_.pickle();
    std::vector<NodeId> pairs;
    if (pickle.kind(*shared) == PickleKind::kDict) {
      const auto items = pickle.items(*shared);
      pairs.assign(items.begin(), items.end());
    } else {
      for (const NodeId pair : pickle.items(*shared)) {
        const auto items = pickle.items(pair);
        if (!is_sequence(pickle, pair) || items.size() != 2) {
          return corrupt(model_.path(), "shared_params is no list of pairs");
        }
        pairs.insert(pairs.end(), items.begin(), items.end());
      }
    }
    std::map<std::string, std::size_t, std::less<>> by_name;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) by_name[plan_.tensors[i].name] = i;
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
      if (pickle.kind(pairs[i]) != PickleKind::kText ||
          pickle.kind(pairs[i + 1]) != PickleKind::kText) {
        return corrupt(model_.path(), "shared_params holds what is no name");
      }
      const auto source = by_name.find(pickle.text(pairs[i + 1]));
      if (source == by_name.end()) continue;  // as zero_to_fp32: frozen ones may be left out
      // Before anything is copied: a list can hold one pair any number of times.
      const auto [place, fresh] =
          by_name.emplace(std::string(pickle.text(pairs[i])), plan_.tensors.size());
      if (!fresh) {
        return corrupt(model_.path(), "tensor " + quote_name(place->first) + " comes twice");
      }
      states_.budget().take_whole(plan_.tensors[source->second]);
      if (states_.budget().is_spent()) return too_much(place->first);
      TensorPlan tensor = plan_.tensors[source->second];
      tensor.name = place->first;
      plan_.tensors.push_back(std::move(tensor));
    }
    return {};
  }

  /// Stages 1 and 2 save the whole module too, in the type of training. What neither the fp32
  /// vectors nor the lists above have is taken from there: frozen parameters under stage 1, and
  /// tied names of releases that do not list them, which zero_to_fp32 leaves out.
  Status add_rest_of_module() {
    const auto module = model_.value("module");
    if (!module) return {};
    using View =
        std::tuple<std::uint64_t, DType, std::vector<std::int64_t>, std::vector<std::int64_t>>;
    std::map<std::string, std::size_t, std::less<>> by_name;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) by_name[plan_.tensors[i].name] = i;
    std::map<View, std::size_t> by_view;  // of the module's tensors that the plan has
    std::vector<std::pair<std::string, StoredTensor>> rest;
    for (const auto& [name, node] : DeepspeedModel::values_of(model_.pickle(), *module)) {
      if (is_extra_state(name)) plan_.extra_states.emplace_back(name);
      if (is_extra_state(name) || model_.pickle().kind(node) == PickleKind::kNone) continue;
      const auto planned = by_name.find(name);
      if (planned == by_name.end()) {
        EVALCAR_ASSIGN_OR_RETURN(StoredTensor tensor,
                                 states_.stored(model_.first(), node, std::string(name)));
        states_.budget().take_found(tensor.size.size());
        if (states_.budget().is_spent()) return too_much(std::string(name));
        rest.emplace_back(name, std::move(tensor));
      } else if (is_plain_tensor(model_.pickle(), node)) {
        EVALCAR_ASSIGN_OR_RETURN(
            const StoredTensor tensor,
            read_stored_tensor(model_.first().torch_file, node, std::string(name)));
        states_.budget().take_found(tensor.size.size());
        if (states_.budget().is_spent()) return too_much(std::string(name));
        by_view.emplace(View{tensor.file_offset, tensor.dtype, tensor.size, tensor.stride},
                        planned->second);
      }
    }
    for (auto& [name, stored_tensor] : rest) {
      const auto tied = by_view.find(View{stored_tensor.file_offset, stored_tensor.dtype,
                                          stored_tensor.size, stored_tensor.stride});
      TensorPlan tensor;
      if (tied != by_view.end() && plan_.tensors[tied->second].elements() > 0) {
        states_.budget().take_whole(plan_.tensors[tied->second]);
        if (states_.budget().is_spent()) return too_much(name);
        tensor = plan_.tensors[tied->second];
        tensor.name = name;
        plan_.tensors.push_back(std::move(tensor));
        continue;
      }
      tensor.dtype = stored_tensor.dtype;
      tensor.shape = stored_tensor.size;
      if (tensor.elements() > 0) {
        tensor.pieces.push_back(whole_piece(model_.first().index, stored_tensor));
      }
      tensor.name = name;
      EVALCAR_RETURN_IF_ERROR(add(std::move(tensor)));
    }
    return {};
  }

  Error too_much(const std::string& name) const {
    return corrupt(folder_.path, "tensor " + quote_name(name) + " " + PlanBudget::kTooMuch);
  }
  Status add(TensorPlan tensor) {
    for (const Piece& piece : tensor.pieces) states_.budget().take(piece);
    return add_counted(std::move(tensor));
  }
  /// One whose pieces were counted when they were made.
  Status add_counted(TensorPlan tensor) {
    states_.budget().take(tensor);
    if (states_.budget().is_spent()) return too_much(tensor.name);
    plan_.tensors.push_back(std::move(tensor));
    return {};
  }

  const Folder& folder_;
  const DeepspeedFiles& found_;
  Plan plan_;
  DeepspeedStates states_;                      // fills plan_
  std::vector<DeepspeedOptimizer> optimizers_;  // by rank
  DeepspeedModel model_;                        // stage 3: files by rank
};

}  // namespace

Result<Plan> plan_deepspeed(const FileSystem& files, const Folder& folder,
                            const DeepspeedFiles& found) {
  return Builder(files, folder, found).build();
}

}  // namespace evalcar::checkpoint
