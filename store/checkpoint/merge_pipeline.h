// Streams the bytes of one output file: several threads read (average, cast) chunks ahead, the
// calling thread hands them on in order.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// One chunk of the output: a box of a tensor.
struct MergeChunk {
  std::size_t tensor = 0;
  Box box;
};

/// Where chunks come from. All pointers outlive the pipeline.
struct MergeSource {
  const Plan* plan = nullptr;              ///< of the first checkpoint: names, dtypes, shapes
  std::vector<const PlanReader*> readers;  ///< one, or several to average
  std::vector<double> weights;             ///< of each reader in the average; positive
  std::optional<DType> dtype;              ///< the cast
  const std::atomic<bool>* cancelled = nullptr;
};

/// The dtype in which a tensor is written.
DType output_dtype(const TensorPlan& tensor, const std::optional<DType>& cast);

/// The bytes that it takes there.
std::uint64_t output_bytes(const TensorPlan& tensor, const std::optional<DType>& cast);

/// The boxes in which a tensor is read: small ones that stay in a processor's cache, larger ones
/// where the file has another order than row-major, since each box then takes a part of every run.
std::vector<Box> merge_boxes(const TensorPlan& tensor);

/// Calls `sink` (on this thread) with the bytes of each chunk in turn. Stops at the first error of
/// a read or of the sink. Memory: 64 MiB and what one chunk takes, however many threads.
Status run_merge_pipeline(const MergeSource& source, const std::vector<MergeChunk>& chunks,
                          int threads,
                          const std::function<Status(std::span<const std::byte>)>& sink);

}  // namespace evalcar::checkpoint
