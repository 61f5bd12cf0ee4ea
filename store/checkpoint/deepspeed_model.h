// ZeRO's model states (*_model_states.pt): names and shapes of the parameters, buffers, frozen
// parameters, and what the module was saved as.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "store/checkpoint/deepspeed_files.h"
#include "store/checkpoint/deepspeed_state.h"

namespace evalcar::checkpoint {

struct DeepspeedParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t elements = 0;
};

class DeepspeedModel {
 public:
  using NodeId = Pickle::NodeId;

  /// Stages 1 and 2 have one file, stage 3 one of each rank. kUnavailable where one is missing,
  /// kCorruption where param_shapes is malformed, kUnsupported for AutoEP's expert layers.
  static Result<DeepspeedModel> read(DeepspeedStates& states, const DeepspeedFiles& found,
                                     std::int64_t stage, std::size_t ranks);

  const std::vector<DeepspeedState>& files() const { return files_; }
  const DeepspeedState& first() const { return files_[0]; }
  const Pickle& pickle() const { return first().torch_file.pickle; }
  const std::string& path() const { return first().torch_file.where; }
  /// Of the first file; absent where it is None, too.
  std::optional<NodeId> value(const char* key) const;
  /// The trainable parameters, by group, in the order of the flat vectors.
  const std::vector<std::vector<DeepspeedParameter>>& groups() const { return groups_; }
  /// Name → shape, as a dict of the first file has it.
  Result<std::vector<DeepspeedParameter>> parameters_of(NodeId dict) const;
  /// Name → value of a large dict of any file; a name that comes twice has its last value.
  static std::map<std::string_view, NodeId> values_of(const Pickle& pickle, NodeId dict);

 private:
  Status read_shapes();
  /// `names`: those that are known already.
  Status add_parameters(NodeId dict, std::set<std::string_view>& names,
                        std::vector<DeepspeedParameter>& parameters) const;
  Result<DeepspeedParameter> parameter(NodeId key, NodeId shape) const;
  Error corrupt(const std::string& what) const {
    return make_error(ErrorCode::kCorruption, path() + ": " + what);
  }

  std::vector<DeepspeedState> files_;
  std::vector<std::vector<DeepspeedParameter>> groups_;
};

}  // namespace evalcar::checkpoint
