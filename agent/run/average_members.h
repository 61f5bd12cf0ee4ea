// The checkpoints that an average may be of: whose regular weights were whole, and where their
// files are now.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "agent/run/disk_view.h"
#include "agent/stage/stage.h"
#include "store/state/store.h"

namespace evalcar::run {

/// A checkpoint whose regular weights were complete, by its newest generation.
struct AverageMember {
  state::Checkpoint checkpoint;
  std::vector<state::FileIdentity> files;
  /// Probably of a training that was resumed from before it: it was removed, and a step below it
  /// came after that, or came anew, with younger files. Reason enough to form no average of it,
  /// none to form another one.
  bool left_behind = false;
  /// That, or a step below it was written anew after it: the training that goes on has not reached
  /// it yet.
  bool older_line = false;
  std::string lease_name() const;
};

/// Why an average at `newest`'s step has no place for `member` (which may be `newest` itself): it
/// is probably of another training than the one that saved `newest`, since training was resumed
/// from before it. "": no sign of that.
std::string why_of_another_training(const AverageMember& member, const AverageMember& newest);

/// Not thread-safe. All references must outlive it.
class AverageMembers {
 public:
  AverageMembers(const state::Store& store, const stage::Stage& stage, const DiskView& view)
      : store_(store), stage_(stage), view_(view) {}

  /// By step.
  Result<std::vector<AverageMember>> known(std::int64_t run_id) const;
  /// Steps whose regular weights may still become complete, whether anybody wants them measured or
  /// not; those in `torn` cannot.
  std::set<std::int64_t> open_steps(const std::set<std::int64_t>& torn) const;
  /// Whether its lease is there, and whole: a process may have ended while it was taken.
  bool is_held(const AverageMember& member) const;
  /// Where its files are now; "" if they are gone.
  std::string files_of(const AverageMember& member) const;

 private:
  const state::Store& store_;
  const stage::Stage& stage_;
  const DiskView& view_;
};

}  // namespace evalcar::run
