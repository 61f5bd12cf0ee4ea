// `evalcar inspect`: what a checkpoint is, whether it is complete, and which tensors it holds.
#pragma once

#include <iosfwd>
#include <string>

#include "store/base/file_system.h"
#include "store/checkpoint/layout.h"

namespace evalcar::cli {

struct InspectOptions {
  /// CHECKPOINT, the positional argument; of a run folder its newest complete one is taken
  std::string checkpoint;
  checkpoint::WeightsKind weights = checkpoint::WeightsKind::kRegular;  ///< --weights regular|ema
  bool hash = false;  ///< --hash: a SHA-256 per tensor and weights_sha256
  std::string diff;   ///< --diff OTHER: compares with another checkpoint (implies --hash); or empty
  /// --model_name_or_class: a folder, or an id of the hub, that has what the checkpoint lacks: its
  /// configuration, or an adapter's base model; or empty.
  std::string model_name_or_class;
  /// --pattern: of the names of a run folder's checkpoints; empty: those of the known trainers
  std::string pattern;
  /// --state_dict_dirname: the shards' folder in the checkpoint; empty: the usual ones
  std::string state_dict_dirname;
  bool json = false;  ///< --json: one JSON document (the contract of the design) instead of a table
  int threads = 0;    ///< for hashing; 0: as many as the machine has, at most 8
};

/// Prints to `out`; progress and errors go to `err`. Returns the exit code: 0 complete (with
/// --diff: equal), 1 unreadable, damaged or of an unknown layout (with --diff: different), 2 no
/// such folder or no such --model_name_or_class, 3 not complete yet.
int run_inspect(const InspectOptions& options, FileSystem& files, std::ostream& out,
                std::ostream& err);

}  // namespace evalcar::cli
