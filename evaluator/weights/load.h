// From a checkpoint's plan into the arena: the one place where weights enter the program.
//
// A score is never computed from wrong weights: every expected tensor is there exactly once, in its
// shape, with finite values; nothing unknown is there; and the files are the same after as before.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "evaluator/weights/arena.h"
#include "evaluator/weights/layout.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::weights {

struct LoadReport {
  std::string weights_sha256;  ///< over the tensors as stored
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;                             ///< as stored
  std::vector<checkpoint::TensorDigest> digests = {};  ///< of each tensor, as stored
};

/// Which plan tensor goes where; made before anything is allocated.
struct Assignment {
  /// Per plan tensor: index into WeightLayout::sources, or into ties (then `tie` is true).
  struct Target {
    std::size_t index = 0;
    bool tie = false;
  };
  std::vector<Target> targets;
};

/// Checks names, shapes and dtypes of a plan. kCorruption naming the tensors that are missing,
/// extra, twice there or misshapen (the first eight of each); kUnsupported for a dtype that is not
/// a float.
Result<Assignment> assign(const checkpoint::Plan& plan, const WeightLayout& layout);

/// Per resident tensor: whether all of it is stored as bfloat16.
std::vector<bool> stored_as_bfloat16(const checkpoint::Plan& plan, const WeightLayout& layout,
                                     const Assignment& assignment);

/// What load() takes of the host's memory at most, beside the arena.
std::uint64_t staging_bytes(const checkpoint::Plan& plan, at::Device device, int threads);

/// How many of `most` threads may read, at least one, so that load() takes no more than `bytes` of
/// the host's memory for what is on its way.
int threads_within(const checkpoint::Plan& plan, at::Device device, int most, std::uint64_t bytes);

/// And of a GPU's: what is stored in another dtype is cast there, part by part.
std::uint64_t casting_bytes(const checkpoint::Plan& plan, at::ScalarType dtype, at::Device device,
                            int threads);

/// Fills `arena`, with up to `threads` reading threads. After an error its contents are undefined.
/// kCorruption: a value that is not finite, or a tied tensor that is not equal; kUnavailable: a
/// file changed meanwhile; kCancelled, soon after `stop`. `on_progress(done, total)`, in bytes read
/// (the tensors, then what else their files state checksums of, which raises the total), may be
/// empty; it is called from the calling thread.
Result<LoadReport> load(const FileSystem& files, const checkpoint::Plan& plan,
                        const WeightLayout& layout, const Assignment& assignment, Arena& arena,
                        int threads,
                        const std::function<void(std::uint64_t, std::uint64_t)>& on_progress,
                        std::stop_token stop);

}  // namespace evalcar::weights
