// Writes a Hugging Face folder (safetensors, configuration, tokenizer, processor) from the plan of
// a checkpoint, or from the average of several.
//
// The same input gives the same bytes. Memory is bounded by a few chunks. The folder appears by one
// rename when everything in it is on disk; a merge that fails, is cancelled or is killed leaves
// nothing under the target's name, and the next one removes what a killed one left beside it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

struct MergeRequest {
  std::vector<Plan> plans;  ///< one; or several with the same tensors, whose mean is written
  std::vector<std::string> source_dirs;  ///< the checkpoints' folders, as many as plans
  /// Of each plan in the mean, positive, as many as plans; empty: all the same.
  std::vector<double> weights;
  std::string output_dir;  ///< must not exist, or be empty
  /// Replaces the output folder if it is there. Only for folders that are ours.
  bool replace_output = false;
  /// Where configuration, tokenizer and processor come from if the last source has none, each of
  /// them whole; or empty.
  std::string side_file_fallback_dir;
  /// Cast of float64, float32, float16 and bfloat16 tensors; absent: each keeps its own. Integers,
  /// booleans, float8 and float4 are always kept.
  std::optional<DType> dtype;
  std::uint64_t max_shard_bytes = 5'000'000'000;   ///< of tensors in one file
  int threads = 2;                                 ///< that read and convert; one more writes
  const std::atomic<bool>* cancelled = nullptr;    ///< set by another thread or a signal; or null
  std::function<void(std::uint64_t)> on_progress;  ///< bytes written so far; may be empty
};

/// One output file.
struct MergedFile {
  std::string name;
  std::vector<std::size_t> tensors;  ///< indices into the plan, in the order of their bytes
  std::uint64_t bytes = 0;           ///< of tensors
};

struct MergeReport {
  std::vector<MergedFile> files;
  std::vector<std::string> side_files;
  std::vector<std::string> left_out;  ///< SideFiles::left_out
  std::uint64_t tensor_bytes = 0;
  /// The input embedding and the head differ, so that the configuration ties them no longer. Only
  /// known when merged.
  bool untied = false;
  /// They differ, and the configuration still ties them, because in this kind of model the flag
  /// does more (tie_config.h). transformers 5 loads both as they are.
  bool still_tied = false;
};

/// What a merge would write, without reading any tensor. kIo when there is too little free
/// space; kUnsupported where safetensors cannot hold a tensor; kInvalidArgument where the plans do
/// not hold the same tensors, or where the output may not be: inside a checkpoint, or (its trainer
/// prunes and resumes by such names) named `checkpoint…` beside checkpoints.
Result<MergeReport> plan_merge(const FileSystem& files, const MergeRequest& request);

/// Merges. Errors as plan_merge; kCorruption where a checksum does not fit; kUnavailable when a
/// source changed while it was read; kCancelled. Tied tensors are written under each of their
/// names: transformers ties them again, and whoever does not tie finds both. Where the
/// configuration ties an embedding and a head that differ, the written one does not (`untied`), and
/// what the tie filled is written under its own names, too (tied_copies.h).
Result<MergeReport> merge(FileSystem& files, const MergeRequest& request);

}  // namespace evalcar::checkpoint
