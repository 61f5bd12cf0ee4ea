// Hashes a lease's weights once more, in a child of its own (`evalcar inspect --hash --json`): the
// loop goes on meanwhile, and a parser of foreign files never runs in the agent.
#pragma once

#include <poll.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/supervise/child_process.h"
#include "store/base/result.h"

namespace evalcar::run {

/// Not thread-safe. Destroying it ends the child.
class Rehash {
 public:
  /// `program`: evalcar itself.
  static Result<Rehash> start(const std::vector<std::string>& program, const std::string& dir,
                              const std::string& kind);
  /// The weights' SHA-256, or why there is none; absent while it runs.
  std::optional<Result<std::string>> poll();
  void add_descriptors(std::vector<pollfd>& descriptors) const;

 private:
  explicit Rehash(supervise::ChildProcess child) : child_(std::move(child)) {}

  supervise::ChildProcess child_;
  std::string tail_;  ///< of the output: where the hash was not found yet
  std::string hash_;
  bool ended_ = false;
};

}  // namespace evalcar::run
