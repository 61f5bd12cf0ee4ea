// The state files of a ZeRO checkpoint: torch.save files whose tensors become pieces of one plan.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/plan_budget.h"
#include "store/checkpoint/torch_tensor.h"

namespace evalcar::checkpoint {

// Far above real models. A pickle's list can hold one object any number of times for two bytes
// each, so what is made of it needs a limit of its own.
constexpr std::size_t kMaxDeepspeedParameters = 200'000;  ///< of one file, in all groups
constexpr std::size_t kMaxDeepspeedGroups = 10'000;       ///< of one file; stage 3: sub-groups

/// One read state file.
struct DeepspeedState {
  std::size_t index = 0;  ///< into Plan::files
  TorchFile torch_file;
};

/// Not thread-safe. All references must outlive it.
class DeepspeedStates {
 public:
  DeepspeedStates(const FileSystem& files, const Folder& folder, Plan& plan)
      : files_(files), folder_(folder), plan_(plan) {}

  const std::string& folder() const { return folder_.path; }
  /// Reads a file's directory and pickle, and adds it to the plan's files. kUnavailable while it is
  /// written; else as TorchFile::read.
  Result<DeepspeedState> open(const std::string& name);
  /// The tensor at a node; remembers its storage's checksum. Errors as read_stored_tensor.
  Result<StoredTensor> stored(const DeepspeedState& state, Pickle::NodeId node,
                              const std::string& name);
  /// Of the whole plan: what open() read is allowed.
  PlanBudget& budget() { return budget_; }
  /// Gives the plan the checksums of what was stored().
  void add_records();

 private:
  const FileSystem& files_;
  const Folder& folder_;
  Plan& plan_;
  PlanBudget budget_;
  std::map<std::pair<std::size_t, std::uint64_t>, PlanRecord> records_;  // by file and offset
};

/// Whether a node is a list or a tuple.
bool is_sequence(const Pickle& pickle, Pickle::NodeId node);

}  // namespace evalcar::checkpoint
