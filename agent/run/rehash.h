// Hashes a lease's weights once more, in a child of its own (`evalcar inspect --hash --json`): the
// loop goes on meanwhile, and a parser of foreign files never runs in the agent.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agent/supervise/child_process.h"
#include "store/base/clock.h"
#include "store/base/result.h"

namespace evalcar::run {

/// Which weights to hash: what the evaluator was told to load.
struct LeasedWeights {
  std::string dir;
  std::string kind;
  std::string base_model;  ///< folder with what the checkpoint lacks; may be empty
};

/// Not thread-safe. Destroying it ends the child.
class Rehash {
 public:
  /// `program`: evalcar itself. `clock` must outlive it; after `limit` it is given up.
  static Result<Rehash> start(const std::vector<std::string>& program, const LeasedWeights& weights,
                              const Clock& clock, std::chrono::milliseconds limit);
  /// The weights' SHA-256, or why there is none (kUnavailable); absent while it runs. At the limit
  /// the child's whole group is killed: storage that hangs must not hold all evaluations up.
  std::optional<Result<std::string>> poll();
  void add_descriptors(std::vector<pollfd>& descriptors) const;

 private:
  Rehash(supervise::ChildProcess child, const Clock& clock, std::chrono::milliseconds limit)
      : child_(std::move(child)),
        clock_(&clock),
        limit_(limit),
        deadline_(clock.monotonic_now() + limit) {}

  supervise::ChildProcess child_;
  const Clock* clock_;
  std::chrono::milliseconds limit_;
  MonotonicTime deadline_;
  std::string tail_;  ///< of the output: where the hash was not found yet
  std::string hash_;
  std::string reason_;  ///< why the checkpoint has no hash, in `inspect`'s words
  bool ended_ = false;
};

}  // namespace evalcar::run
