// What the last look at an output directory saw, and which of its evaluations runs: the little that
// the parts of an output directory share besides the rows. All of it can be lost at any time; a
// look at the disk brings it back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "agent/watch/watcher.h"

namespace evalcar::run {

struct DiskView {
  using Key = std::pair<std::int64_t, checkpoint::WeightsKind>;

  std::map<std::int64_t, std::string> present;  ///< folders that are there, by step
  /// Steps that were seen and may not be in a row yet, whether their folders are there or not.
  std::set<std::int64_t> untold;
  std::map<Key, watch::Sighting> complete;  ///< the newest content of each kind
  /// What was told last of each kind; of one that no look ever found, nothing.
  std::map<Key, watch::Decision> told;

  /// The complete content of these weights in the folder `path`; null: none was seen there. A row
  /// may be of weights that lay elsewhere, beside a folder of their step (snapshots.h).
  const watch::Sighting* whole_in(const std::string& path, const Key& key) const {
    const auto found = complete.find(key);
    return found != complete.end() && found->second.path == path ? &found->second : nullptr;
  }

  std::optional<std::int64_t> newest_step() const {
    if (present.empty()) return std::nullopt;
    return present.rbegin()->first;
  }

  using WrittenAt = std::map<std::int64_t, std::int64_t>;  ///< in ns, by step
  /// When the newest file of each complete checkpoint was written.
  WrittenAt written_at() const;
  /// The one that was written last, of equals the highest step; absent: none is complete. Beside
  /// folders of an earlier training it is not the highest step.
  std::optional<std::int64_t> step_written_last() const;
};

/// publish.keep_best: names of the leases that stay though no evaluation needs them.
struct KeptForBest {
  bool known = false;  ///< false: not ranked since the start, any lease may be one of them
  std::set<std::string> names;
  bool may_hold(const std::string& name) const { return !known || names.contains(name); }
};

struct InFlight {
  /// The evaluation that runs now: its lease is not given up, and a configuration that does not
  /// want it lets it finish.
  std::optional<std::int64_t> active;
  /// Whose files were replaced or went: running jobs on them must end.
  std::set<std::int64_t> superseded;
};

}  // namespace evalcar::run
