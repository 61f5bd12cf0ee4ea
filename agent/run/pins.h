// `evalcar pin STEP`: the weights of a checkpoint stay, whatever retention and keep_best do.
//
// A pin is a folder of hard links (clones or copies where links fail), `pinned/<lease name>` beside
// the leases: the disk alone knows it, no row does, and no clearing of leases touches it. It goes
// by `evalcar pin STEP --off`, or as the last of all that we hold when disk space is short.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/request/request.h"
#include "agent/run/disk_space.h"
#include "agent/run/disk_view.h"
#include "agent/stage/stage.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class Pins {
 public:
  /// `leases`: where the files of a checkpoint that is gone may still be; `pinned`: where pins are.
  Pins(const FileSystem& files, const state::Reader& rows, const stage::Stage& leases,
       stage::Stage& pinned, const DiskSpace& space, const DiskView& view)
      : files_(files), rows_(rows), leases_(leases), pinned_(pinned), space_(space), view_(view) {}

  /// Both kinds of weights of that step, each of its newest save of which they are complete and
  /// still somewhere. The answer says where that is an older save.
  request::Answer set(std::int64_t run_id, const request::Pin& asked);
  /// Disk space is short, and there is nothing else to give up: the oldest step. False: no pin
  /// keeps anything on disk.
  Result<bool> give_up_oldest();
  /// What is pinned, from the lowest step on.
  std::vector<std::int64_t> steps();

 private:
  struct Pinned {
    std::string dir;
    bool is_older = false;  ///< a newer save of the step had these weights, too
  };
  Result<std::optional<Pinned>> pin_newest(const std::vector<state::Checkpoint>& saves,
                                           const std::string& kind);
  Result<std::optional<std::string>> pin_kind(const state::Checkpoint& checkpoint,
                                              const std::string& kind,
                                              const std::vector<state::FileIdentity>& judged);
  request::Answer unpin(std::int64_t step);

  const FileSystem& files_;
  const state::Reader& rows_;
  const stage::Stage& leases_;
  stage::Stage& pinned_;
  const DiskSpace& space_;
  const DiskView& view_;
  std::optional<std::vector<std::int64_t>> steps_;  ///< as of the last look at the disk
};

}  // namespace evalcar::run
