// All output directories of one agent, asked together.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/run/output_directory.h"
#include "agent/run/tally.h"

namespace evalcar::run {

/// Not thread-safe.
class Directories {
 public:
  using All = std::vector<std::unique_ptr<OutputDirectory>>;

  /// Both must outlive it.
  Directories(const Surroundings& around, const config::Settings& settings)
      : around_(around), settings_(settings) {}

  /// Opens one; errors as OutputDirectory::open. It stays where it is until it is closed.
  Result<OutputDirectory*> open(const std::string& path);
  /// The same for a job that brings it. kUnavailable: jobs have brought too many.
  Result<OutputDirectory*> open_served(const std::string& path);
  /// Closes those that were not needed for a while, and at once those that are another agent's.
  /// `before`: told of each.
  void close_idle(const std::function<bool(const OutputDirectory&)>& is_needed,
                  const std::function<void(const OutputDirectory&)>& before);
  const All& all() const { return all_; }
  std::vector<std::string> paths() const;

  /// What was there at the start is known: each has been looked at once, or has shown that it
  /// cannot be.
  bool looked() const;
  /// One of them can only go on in another agent.
  bool must_begin_anew() const;
  /// How many evaluations waited at the last look.
  std::size_t waiting_count() const;
  /// Something waited then, and all that did so for its tasks' data.
  bool only_data_are_missing() const;
  /// Something was published in part and could be completed.
  bool any_in_part() const;
  /// A change was seen at that time or later.
  bool any_news_since(MonotonicTime time) const;
  /// All that rests may be chosen again.
  void end_rest();
  Result<Tally> tally() const;
  std::chrono::milliseconds until_due(std::chrono::milliseconds at_most) const;
  void add_descriptors(std::vector<pollfd>& descriptors) const;

 private:
  const Surroundings& around_;
  const config::Settings& settings_;
  All all_;
  std::map<const OutputDirectory*, MonotonicTime> needed_at_;
};

}  // namespace evalcar::run
