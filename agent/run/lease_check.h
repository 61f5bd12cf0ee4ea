// Are the files of a lease still the ones that were measured? Asked once a result is there:
// whatever was computed from others is thrown away.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agent/config/settings.h"
#include "agent/run/rehash.h"
#include "agent/run/surroundings.h"
#include "agent/stage/stage.h"

namespace evalcar::run {

/// Not thread-safe.
class LeaseCheck {
 public:
  /// `around` must outlive it. `kind`: of the weights in the lease.
  LeaseCheck(const Surroundings& around, const config::Settings& settings, std::string kind);

  /// Why what was measured does not count, "" if it does; absent while the weights are hashed once
  /// more, because only the ctime of files differs. Once known it stays. kUnavailable: the files
  /// cannot be asked at the moment.
  Result<std::optional<std::string>> judge(const stage::Stage& stage, const stage::Lease& lease,
                                           const std::string& measured_sha256);
  /// Begins to hash the lease's weights.
  Result<Rehash> start_rehash(const stage::Lease& lease) const;
  bool hashing() const { return rehash_.has_value(); }
  void add_descriptors(std::vector<pollfd>& descriptors) const;

 private:
  Status look(const stage::Stage& stage, const stage::Lease& lease);
  void take_hash(const std::string& measured_sha256);

  const Surroundings& around_;
  std::string base_model_;
  std::string kind_;
  std::chrono::milliseconds rehash_limit_;
  std::optional<Rehash> rehash_;
  std::optional<std::string> verdict_;
};

}  // namespace evalcar::run
