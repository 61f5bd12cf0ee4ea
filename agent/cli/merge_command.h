// `evalcar merge`: shards (or several checkpoints) into one Hugging Face folder.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/checkpoint/layout.h"

namespace evalcar::cli {

struct MergeOptions {
  /// --input_dir DIR|CKPT[,CKPT...] split at the commas: one run folder, or checkpoints.
  std::vector<std::string> inputs;
  std::string output_dir;            ///< --output_dir; empty: <run>/_evalcar/merged/<step>/<kind>/
  std::string type = "auto";         ///< --type hf|fsdp2|dcp|auto: what the input has to be
  std::optional<std::int64_t> step;  ///< --step N: this checkpoint of a run folder
  /// --pattern: names of checkpoints in a run folder, with one {step}; empty: `checkpoint-{step}`,
  /// and where none is called so torchtitan's `step-{step}`.
  std::string pattern;
  std::string state_dict_dirname;  ///< --state_dict_dirname: the shards' folder; empty: the usual
  checkpoint::WeightsKind weights = checkpoint::WeightsKind::kRegular;  ///< --weights regular|ema
  std::string dtype = "keep";          ///< --dtype bfloat16|float32|keep
  std::string max_shard_size = "5GB";  ///< --max-shard-size: a number with B, KB, MB, GB or KiB…
  bool average = false;                ///< --merge: the mean of all given checkpoints
  /// --merge-weights W[,W...]: of each checkpoint in the mean, oldest first; empty: all the same.
  std::vector<double> average_weights;
  /// --model_name_or_class: a folder, or an id of the hub, that has the configuration and tokenizer
  /// that the checkpoint lacks; or a class of transformers, which is only compared; or empty.
  std::string model_name_or_class;
  std::string data_dir;  ///< --data: may hold that model, too; or empty
  bool dry_run = false;  ///< --dry-run: says what would be written
  std::function<void(const std::string& path)> on_written;  ///< told the folder; may be empty
  int threads = 0;  ///< 0: as many as the machine has, at most 8
};

/// Says on `out` what was written (or would be), on `err` the progress and what went wrong. While
/// it runs, SIGINT and SIGTERM stop it cleanly. Returns the exit code: 0 done, 1 failed, 2 usage, 3
/// nothing complete to merge yet.
int run_merge(const MergeOptions& options, FileSystem& files, std::ostream& out, std::ostream& err);

}  // namespace evalcar::cli
