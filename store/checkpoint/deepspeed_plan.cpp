#include "store/checkpoint/deepspeed_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "store/checkpoint/convert.h"
#include "store/checkpoint/flat_tensor.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/torch_tensor.h"

namespace evalcar::checkpoint {
namespace {

using NodeId = Pickle::NodeId;

/// Far above real models; bounds the memory that a small file can ask for.
constexpr std::size_t kMaxParameters = 200'000;
constexpr std::size_t kMaxParameterDimensions = 8;

/// One open state file.
struct StateFile {
  std::size_t index = 0;  // into Plan::files
  TorchFile torch_file;
};

/// What an optimizer file says.
struct OptimizerState {
  std::int64_t stage = 0;
  std::int64_t partitions = 0;
  std::vector<StoredTensor> groups;                 // this rank's part of each flat fp32 vector
  std::vector<std::vector<std::int64_t>> paddings;  // behind each parameter of a group; stage 1, 2
  std::size_t file = 0;
};

struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t elements = 0;
};

class Builder {
 public:
  Builder(const FileSystem& files, const Folder& folder, const DeepspeedFiles& found)
      : files_(files), folder_(folder), found_(found) {}

  Result<Plan> build() {
    EVALCAR_RETURN_IF_ERROR(read_optimizers());
    EVALCAR_ASSIGN_OR_RETURN(const std::vector<std::string> models, model_files());
    for (const std::string& name : models) {
      EVALCAR_ASSIGN_OR_RETURN(StateFile state, open(name));
      models_.push_back(std::move(state));
    }
    EVALCAR_RETURN_IF_ERROR(read_shapes());
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
    if (Status sorted = sort_tensors(plan_); !sorted.has_value()) {
      return make_error(sorted.error().code, folder_.path + ": " + sorted.error().message);
    }
    find_ties(plan_);
    for (const auto& [place, record] : records_) plan_.records.push_back(record);
    plan_.layout = Layout::kDeepspeedZero;
    plan_.world_size = static_cast<int>(optimizers_.size());
    return std::move(plan_);
  }

 private:
  std::int64_t stage() const { return optimizers_[0].stage; }

  Error corrupt(const std::string& where, const std::string& what) const {
    return make_error(ErrorCode::kCorruption, where + ": " + what);
  }

  Result<StateFile> open(const std::string& name) {
    const std::string path = join_path(folder_.path, name);
    EVALCAR_ASSIGN_OR_RETURN(const auto file,
                             open_inside(files_, parent_path(path), base_name(path)));
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo identity, file->info());
    EVALCAR_ASSIGN_OR_RETURN(TorchFile torch_file,
                             TorchFile::read(*file, path, PickleNames::kDeepspeed));
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo after, file->info());
    if (!after.same_content_identity(identity)) {
      return make_error(ErrorCode::kUnavailable, path + ": is being written");
    }
    plan_.files.push_back({path, identity});
    return StateFile{plan_.files.size() - 1, std::move(torch_file)};
  }

  /// The tensor at a node; remembers its storage's checksum.
  Result<StoredTensor> stored(const StateFile& state, NodeId node, const std::string& name) {
    const TorchFile& file = state.torch_file;
    if (!is_plain_tensor(file.pickle, node)) return file.corrupt(name, "is not a plain tensor");
    EVALCAR_ASSIGN_OR_RETURN(StoredTensor tensor, read_stored_tensor(file, node, name));
    if (file.zip.has_checksums() && checked_elements(tensor.size) != 0U) {
      records_.emplace(
          std::pair(state.index, tensor.record.offset),
          PlanRecord{state.index, tensor.record.offset, tensor.record.size, tensor.record.crc32});
    }
    return tensor;
  }

  // ---- *_optim_states.pt

  Status read_optimizers() {
    for (const std::string& name : found_.optimizers) {
      EVALCAR_ASSIGN_OR_RETURN(const StateFile state, open(name));
      EVALCAR_ASSIGN_OR_RETURN(OptimizerState optimizer, read_optimizer(state));
      optimizers_.push_back(std::move(optimizer));
      const OptimizerState& first = optimizers_.front();
      const OptimizerState& last = optimizers_.back();
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
    const auto ranks = static_cast<std::int64_t>(optimizers_.size());
    if (optimizers_[0].partitions != ranks) {
      const std::string counts = std::to_string(ranks) + " *_optim_states.pt, expected " +
                                 std::to_string(optimizers_[0].partitions);
      if (optimizers_[0].partitions > ranks) {
        return make_error(ErrorCode::kUnavailable, folder_.path + ": holds " + counts);
      }
      return corrupt(folder_.path, "holds " + counts + " (some of an older checkpoint?)");
    }
    return {};
  }

  Result<OptimizerState> read_optimizer(const StateFile& state) {
    const Pickle& pickle = state.torch_file.pickle;
    const std::string& where = state.torch_file.where;
    const auto dict = pickle.find(pickle.root(), "optimizer_state_dict");
    const auto stage = dict ? pickle.find(*dict, "zero_stage") : std::nullopt;
    if (!stage) {
      return make_error(ErrorCode::kUnsupported,
                        where + ": has no zero_stage, expected the optimizer state of ZeRO");
    }
    OptimizerState optimizer;
    optimizer.file = state.index;
    EVALCAR_ASSIGN_OR_RETURN(optimizer.stage, read_stage(state, *stage));
    EVALCAR_ASSIGN_OR_RETURN(optimizer.partitions, read_partitions(state, *dict));
    const char* const key =
        optimizer.stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
    const auto groups = pickle.find(*dict, key);
    if (!groups || !is_sequence(pickle, *groups)) {
      return corrupt(where, "has no list " + std::string(key));
    }
    for (const NodeId group : pickle.items(*groups)) {
      const std::string name =
          std::string(key) + "[" + std::to_string(optimizer.groups.size()) + "]";
      EVALCAR_ASSIGN_OR_RETURN(StoredTensor tensor, stored(state, group, name));
      if (tensor.size.size() != 1 || (tensor.size[0] > 1 && tensor.stride[0] != 1)) {
        return state.torch_file.corrupt(name, "is no flat vector");
      }
      if (!is_convertible(tensor.dtype)) {
        return state.torch_file.corrupt(
            name, "is " + std::string(dtype_name(tensor.dtype)) + ", expected a floating type");
      }
      optimizer.groups.push_back(std::move(tensor));
    }
    EVALCAR_RETURN_IF_ERROR(read_paddings(state, *dict, optimizer));
    return optimizer;
  }

  static bool is_sequence(const Pickle& pickle, NodeId node) {
    return pickle.kind(node) == PickleKind::kList || pickle.kind(node) == PickleKind::kTuple;
  }

  /// An integer, ZeroStageEnum(n), or getattr(ZeroStageEnum, name).
  Result<std::int64_t> read_stage(const StateFile& state, NodeId node) const {
    const Pickle& pickle = state.torch_file.pickle;
    if (pickle.is_object(node, PickleGlobal::kGetattr)) {
      constexpr std::array<std::string_view, 3> kNames = {"optimizer_states", "gradients",
                                                          "weights"};
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
  Result<std::int64_t> read_partitions(const StateFile& state, NodeId dict) const {
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

  Status read_paddings(const StateFile& state, NodeId dict, OptimizerState& optimizer) const {
    const Pickle& pickle = state.torch_file.pickle;
    const auto node = pickle.find(dict, "param_alignment_paddings");
    if (!node || pickle.kind(*node) == PickleKind::kNone) return {};
    if (!is_sequence(pickle, *node)) {
      return corrupt(state.torch_file.where, "param_alignment_paddings is no list");
    }
    for (const NodeId group : pickle.items(*node)) {
      auto paddings = read_sizes(pickle, group, SIZE_MAX);
      if (!paddings) {
        return corrupt(state.torch_file.where,
                       "param_alignment_paddings is no list of lists of sizes");
      }
      optimizer.paddings.push_back(*std::move(paddings));
    }
    if (optimizer.paddings.size() != optimizer.groups.size()) {
      return corrupt(state.torch_file.where,
                     "param_alignment_paddings has not one list for each group");
    }
    return {};
  }

  // ---- *_model_states.pt

  Result<std::vector<std::string>> model_files() const {
    if (stage() != 3) {
      if (found_.model.empty()) {
        return make_error(ErrorCode::kUnavailable,
                          folder_.path + ": mp_rank_00_model_states.pt is missing");
      }
      return std::vector<std::string>{found_.model};
    }
    if (found_.rank_models.size() < optimizers_.size()) {
      return make_error(ErrorCode::kUnavailable, folder_.path + ": the model state of rank " +
                                                     std::to_string(found_.rank_models.size()) +
                                                     " is missing");
    }
    if (found_.rank_models.size() > optimizers_.size()) {
      return corrupt(folder_.path, "holds more model states than optimizer states");
    }
    return found_.rank_models;
  }

  const Pickle& model() const { return models_[0].torch_file.pickle; }
  const std::string& model_path() const { return models_[0].torch_file.where; }
  std::optional<NodeId> model_value(const char* key) const {
    const auto node = model().find(model().root(), key);
    return node && model().kind(*node) != PickleKind::kNone ? node : std::nullopt;
  }

  Result<Parameter> parameter(NodeId key, NodeId shape) const {
    const Pickle& pickle = model();
    const auto sizes = read_sizes(pickle, shape, kMaxParameterDimensions);
    if (pickle.kind(key) != PickleKind::kText || !sizes) {
      return corrupt(model_path(), "a parameter without name or shape");
    }
    Parameter found{std::string(pickle.text(key)), *sizes, 0};
    const auto elements = checked_elements(found.shape);
    if (!elements) {
      return corrupt(model_path(), "parameter " + quote_name(found.name) +
                                       " has too large a shape " + shape_text(found.shape));
    }
    found.elements = *elements;
    return found;
  }

  Result<std::vector<Parameter>> parameters_of(NodeId dict) const {
    std::vector<Parameter> parameters;
    const auto pairs = model().items(dict);
    if (pairs.size() / 2 > kMaxParameters) return corrupt(model_path(), "too many parameters");
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
      EVALCAR_ASSIGN_OR_RETURN(Parameter each, parameter(pairs[i], pairs[i + 1]));
      parameters.push_back(std::move(each));
    }
    return parameters;
  }

  Status read_shapes() {
    const Pickle& pickle = model();
    for (const char* const key : {"ds_autoep_layers", "autoep_layers"}) {
      if (const auto layers = model_value(key); layers && !pickle.items(*layers).empty()) {
        return make_error(ErrorCode::kUnsupported,
                          model_path() + ": has AutoEP's expert layers, which are not read");
      }
    }
    const auto shapes = model_value("param_shapes");
    if (!shapes || !is_sequence(pickle, *shapes)) {
      return corrupt(model_path(), "has no list param_shapes");
    }
    for (const NodeId group : pickle.items(*shapes)) {
      if (pickle.kind(group) != PickleKind::kDict) {
        return corrupt(model_path(), "param_shapes is no list of dicts");
      }
      EVALCAR_ASSIGN_OR_RETURN(auto parameters, parameters_of(group));
      groups_.push_back(std::move(parameters));
    }
    return {};
  }

  /// Name → value of a large dict of a model file; a name that comes twice has its last value.
  static std::map<std::string_view, NodeId> values_of(const Pickle& pickle, NodeId dict) {
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

  static Piece whole_piece(std::size_t file, const StoredTensor& tensor) {
    return Piece{file, tensor.file_offset, std::vector<std::int64_t>(tensor.size.size(), 0),
                 tensor.size, tensor.stride};
  }

  Status add_buffers() {
    const Pickle& pickle = model();
    const auto names = model_value("buffer_names");
    if (!names) return corrupt(model_path(), "has no buffer_names, expected a ZeRO model state");
    const auto module = model_value("module");
    const auto values = module ? values_of(pickle, *module) : values_of(pickle, pickle.root());
    std::set<std::string_view> seen;
    for (const NodeId name : pickle.items(*names)) {
      if (pickle.kind(name) != PickleKind::kText) {
        return corrupt(model_path(), "buffer_names is no list of names");
      }
      const auto found = values.find(pickle.text(name));
      if (found == values.end() || !seen.insert(found->first).second) continue;  // not persistent
      TensorPlan tensor;
      tensor.name = found->first;
      if (is_extra_state(tensor.name)) continue;
      EVALCAR_ASSIGN_OR_RETURN(const StoredTensor buffer,
                               stored(models_[0], found->second, tensor.name));
      tensor.dtype = buffer.dtype;
      tensor.shape = buffer.size;
      // zero_to_fp32 makes every floating buffer float32.
      if (is_convertible(buffer.dtype) && buffer.dtype != DType::kFloat32) {
        tensor.dtype = DType::kFloat32;
        tensor.stored_dtype = buffer.dtype;
      }
      if (tensor.elements() > 0) tensor.pieces.push_back(whole_piece(models_[0].index, buffer));
      plan_.tensors.push_back(std::move(tensor));
    }
    return {};
  }

  Status add_frozen() {
    const auto shapes = model_value("frozen_param_shapes");
    if (!shapes) return {};
    EVALCAR_ASSIGN_OR_RETURN(const std::vector<Parameter> parameters, parameters_of(*shapes));
    std::vector<std::map<std::string_view, NodeId>> fragments;
    for (const StateFile& state : models_) {
      const Pickle& pickle = state.torch_file.pickle;
      const auto dict = pickle.find(pickle.root(), "frozen_param_fragments");
      fragments.push_back(dict ? values_of(pickle, *dict) : std::map<std::string_view, NodeId>());
    }
    for (const Parameter& parameter : parameters) {
      EVALCAR_ASSIGN_OR_RETURN(TensorPlan tensor, frozen(parameter, fragments));
      plan_.tensors.push_back(std::move(tensor));
    }
    return {};
  }

  /// Stage 1 and 2: the tensor itself. Stage 3: flat parts, one of each rank, the last ones padded.
  Result<TensorPlan> frozen(const Parameter& parameter,
                            const std::vector<std::map<std::string_view, NodeId>>& fragments) {
    TensorPlan tensor;
    tensor.name = parameter.name;
    tensor.shape = parameter.shape;
    FlatVector flat;
    for (std::size_t i = 0; i < models_.size(); ++i) {
      const auto found = fragments[i].find(parameter.name);
      const TorchFile& file = models_[i].torch_file;
      if (found == fragments[i].end()) {
        return file.corrupt(parameter.name, "is frozen, but has no fragment");
      }
      EVALCAR_ASSIGN_OR_RETURN(const StoredTensor fragment,
                               stored(models_[i], found->second, parameter.name));
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
          tensor.pieces.push_back(whole_piece(models_[i].index, fragment));
        }
        return tensor;
      }
      if (fragment.size.size() != 1 || (fragment.size[0] > 1 && fragment.stride[0] != 1)) {
        return file.corrupt(parameter.name, "has a fragment that is no flat vector");
      }
      EVALCAR_RETURN_IF_ERROR(flat.append(static_cast<std::uint64_t>(fragment.size[0]),
                                          models_[i].index, fragment.file_offset));
    }
    EVALCAR_RETURN_IF_ERROR(located(flat.add_pieces(tensor, 0, 0, parameter.elements)));
    return tensor;
  }

  Status located(Status status) const {
    if (status.has_value()) return status;
    return make_error(status.error().code, folder_.path + ": " + status.error().message);
  }

  // ---- the trainable parameters

  TensorPlan trainable(const Parameter& parameter, DType dtype) const {
    TensorPlan tensor;
    tensor.name = parameter.name;
    tensor.dtype = dtype;
    tensor.shape = parameter.shape;
    return tensor;
  }

  Status add_stage12() {
    if (groups_.size() != optimizers_[0].groups.size()) {
      return corrupt(folder_.path, "param_shapes has " + std::to_string(groups_.size()) +
                                       " groups, the optimizer states " +
                                       std::to_string(optimizers_[0].groups.size()));
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      FlatVector flat;
      for (const OptimizerState& optimizer : optimizers_) {
        EVALCAR_RETURN_IF_ERROR(
            located(flat.append(static_cast<std::uint64_t>(optimizer.groups[g].size[0]),
                                optimizer.file, optimizer.groups[g].file_offset)));
      }
      const auto& paddings = optimizers_[0].paddings;
      if (!paddings.empty() && paddings[g].size() != groups_[g].size()) {
        return corrupt(folder_.path, "group " + std::to_string(g) +
                                         " has not one alignment padding for each parameter");
      }
      std::uint64_t place = 0;
      for (std::size_t p = 0; p < groups_[g].size(); ++p) {
        TensorPlan tensor = trainable(groups_[g][p], optimizers_[0].groups[g].dtype);
        EVALCAR_RETURN_IF_ERROR(located(flat.add_pieces(tensor, 0, place, groups_[g][p].elements)));
        plan_.tensors.push_back(std::move(tensor));
        place += groups_[g][p].elements;  // within the vector: add_pieces has seen to it
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
        EVALCAR_RETURN_IF_ERROR(located(flats[r].append(static_cast<std::uint64_t>(group.size[0]),
                                                        optimizers_[r].file, group.file_offset)));
      }
      if (flats[r].size() != flats[0].size()) {
        return corrupt(folder_.path, "the flat vectors of rank " + std::to_string(r) +
                                         " have another length than those of rank 0");
      }
    }
    std::uint64_t place = 0;
    for (const std::vector<Parameter>& group : groups_) {
      for (const Parameter& parameter : group) {
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
  Status add_partitioned(const Parameter& parameter, const std::vector<FlatVector>& flats,
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
      EVALCAR_RETURN_IF_ERROR(located(flats[r].add_pieces(tensor, begin, place, count)));
    }
    place += part;
    plan_.tensors.push_back(std::move(tensor));
    return {};
  }

  /// `shared_params`: name that is not stored → name that is; a dict, or a list of such pairs.
  Status add_shared() {
    const auto shared = model_value("shared_params");
    if (!shared) return {};
    const Pickle& pickle = model();
    std::vector<NodeId> pairs;
    if (pickle.kind(*shared) == PickleKind::kDict) {
      const auto items = pickle.items(*shared);
      pairs.assign(items.begin(), items.end());
    } else {
      for (const NodeId pair : pickle.items(*shared)) {
        const auto items = pickle.items(pair);
        if (!is_sequence(pickle, pair) || items.size() != 2) {
          return corrupt(model_path(), "shared_params is no list of pairs");
        }
        pairs.insert(pairs.end(), items.begin(), items.end());
      }
    }
    std::map<std::string, std::size_t, std::less<>> by_name;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) by_name[plan_.tensors[i].name] = i;
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
      if (pickle.kind(pairs[i]) != PickleKind::kText ||
          pickle.kind(pairs[i + 1]) != PickleKind::kText) {
        return corrupt(model_path(), "shared_params holds what is no name");
      }
      const auto source = by_name.find(pickle.text(pairs[i + 1]));
      if (source == by_name.end()) continue;  // as zero_to_fp32: frozen ones may be left out
      TensorPlan tensor = plan_.tensors[source->second];
      tensor.name = pickle.text(pairs[i]);
      by_name[tensor.name] = plan_.tensors.size();
      plan_.tensors.push_back(std::move(tensor));
    }
    return {};
  }

  /// Stages 1 and 2 save the whole module too, in the type of training. What neither the fp32
  /// vectors nor the lists above have is taken from there: frozen parameters under stage 1, and
  /// tied names of releases that do not list them, which zero_to_fp32 leaves out.
  Status add_rest_of_module() {
    const auto module = model_value("module");
    if (!module) return {};
    using View =
        std::tuple<std::uint64_t, DType, std::vector<std::int64_t>, std::vector<std::int64_t>>;
    std::map<std::string, std::size_t, std::less<>> by_name;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) by_name[plan_.tensors[i].name] = i;
    std::map<View, std::size_t> by_view;  // of the module's tensors that the plan has
    std::vector<std::pair<std::string, StoredTensor>> rest;
    for (const auto& [name, node] : values_of(model(), *module)) {
      if (is_extra_state(name) || model().kind(node) == PickleKind::kNone) continue;
      const auto planned = by_name.find(name);
      if (planned == by_name.end()) {
        EVALCAR_ASSIGN_OR_RETURN(StoredTensor tensor, stored(models_[0], node, std::string(name)));
        rest.emplace_back(name, std::move(tensor));
      } else if (is_plain_tensor(model(), node)) {
        EVALCAR_ASSIGN_OR_RETURN(
            const StoredTensor tensor,
            read_stored_tensor(models_[0].torch_file, node, std::string(name)));
        by_view.emplace(View{tensor.file_offset, tensor.dtype, tensor.size, tensor.stride},
                        planned->second);
      }
    }
    for (auto& [name, stored_tensor] : rest) {
      const auto tied = by_view.find(View{stored_tensor.file_offset, stored_tensor.dtype,
                                          stored_tensor.size, stored_tensor.stride});
      TensorPlan tensor;
      if (tied != by_view.end() && plan_.tensors[tied->second].elements() > 0) {
        tensor = plan_.tensors[tied->second];
      } else {
        tensor.dtype = stored_tensor.dtype;
        tensor.shape = stored_tensor.size;
        if (tensor.elements() > 0) {
          tensor.pieces.push_back(whole_piece(models_[0].index, stored_tensor));
        }
      }
      tensor.name = name;
      plan_.tensors.push_back(std::move(tensor));
    }
    return {};
  }

  const FileSystem& files_;
  const Folder& folder_;
  const DeepspeedFiles& found_;
  Plan plan_;
  std::vector<OptimizerState> optimizers_;                               // by rank
  std::vector<StateFile> models_;                                        // stage 3: by rank
  std::vector<std::vector<Parameter>> groups_;                           // of trainable parameters
  std::map<std::pair<std::size_t, std::uint64_t>, PlanRecord> records_;  // by file and offset
};

}  // namespace

Result<Plan> plan_deepspeed(const FileSystem& files, const Folder& folder,
                            const DeepspeedFiles& found) {
  return Builder(files, folder, found).build();
}

}  // namespace evalcar::checkpoint
