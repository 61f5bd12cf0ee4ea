// What the watcher saw of folders that are not complete, in the database: a save that wrote over
// the rest of another one is known as such after a restart, too.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/watch/watcher.h"
#include "store/base/clock.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class Unfinished {
 public:
  Unfinished(state::Store& store, const Clock& clock, const watch::Watcher& watcher)
      : store_(store), clock_(clock), watcher_(watcher) {}

  /// What earlier processes saw, for watch::Watcher::begin.
  Result<watch::UnfinishedFolders> of(std::int64_t run_id) const;
  /// Stores what changed since the last time, at most once in a while. Cheap when nothing did.
  Status step(std::int64_t run_id);
  /// When something is to be stored; absent: there is nothing.
  std::optional<MonotonicTime> due() const;
  /// Another run: what is stored of it is not known.
  void forget();

 private:
  state::Store& store_;
  const Clock& clock_;
  const watch::Watcher& watcher_;
  std::optional<watch::UnfinishedFolders> stored_;  ///< absent: not known
  std::uint64_t seen_ = 0;                          ///< of Watcher::unfinished_changes()
  MonotonicTime not_before_{};
};

}  // namespace evalcar::run
