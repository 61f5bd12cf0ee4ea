// Weights alone, which EvalcarCallback(snapshot_dir=…) puts where writing is cheap (memory), for
// evaluations between two checkpoints.
//
// One lies whole, by a rename, at `<watch.snapshot_dir>/<run>/weights-of-step-500/`; <run> is the
// stem of the database's default name, which both sides know. Its rows are those of checkpoint-500,
// its lease is a link to it, and it is removed once they are over: the callback writes no third one
// meanwhile. A checkpoint of that step that is there has its place, unless its weights are older:
// of an earlier training, it may lie beside those of one that was resumed or begun again below it.
// One that comes later is another generation of it. Where the callback could not write one, it
// counts that in `not-written.json` beside them, and the status tells it. No average is made of
// snapshots, none is kept as one of the best, and they do not count for evaluate.every_nth.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "agent/config/settings.h"
#include "agent/run/disk_view.h"
#include "agent/run/leases.h"
#include "agent/run/recorder.h"
#include "agent/run/surroundings.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class Snapshots {
 public:
  Snapshots(const Surroundings& around, const config::Settings& settings, state::Store& store,
            const CurrentRun& run, Recorder& recorder, Leases& leases, const DiskView& view);

  /// Takes what is new and removes what is over; every second at most. Nothing without
  /// watch.snapshot_dir, or while there is no folder of ours for leases. `training_over`: nobody
  /// writes there any more. True: something was taken.
  Result<bool> step(bool training_over);
  /// When step() has something to do; absent: never.
  std::optional<MonotonicTime> due() const;
  /// How many evaluations had no room for their weights, for the status; "" while all had. It stays
  /// after the training, whose callback takes its word away with it.
  const std::string& missed() const { return missed_; }
  /// When the last ones that were seen were written; absent: none were.
  std::optional<std::int64_t> newest_ns() const { return newest_ns_; }
  /// Another run: what is remembered is of the last one.
  void forget();

 private:
  struct Taken {
    std::uint64_t inode = 0;
    std::int64_t checkpoint_id = 0;
  };

  enum class Beside { kNothing, kOlder, kNewer, kUnclear };
  Beside folder_beside(const watch::Sighting& seen) const;
  Result<bool> look(std::int64_t step, const std::string& path);
  Result<bool> take(std::int64_t step, const std::string& path, std::uint64_t inode);
  Status remove_if_over(std::int64_t step, const std::string& path);
  Status remove(const std::string& path);
  void read_missed(const std::string& path);

  const Surroundings& around_;
  const config::Settings& settings_;
  state::Store& store_;
  const CurrentRun& run_;
  Recorder& recorder_;
  Leases& leases_;
  const DiskView& view_;
  std::string place_;  ///< of this run; "" until it is known
  std::map<std::int64_t, Taken> taken_;
  std::string missed_;
  std::optional<std::int64_t> newest_ns_;
  MonotonicTime due_{};
};

}  // namespace evalcar::run
