// Leases keep the disk space of weights that the trainer deleted. Where that runs out, or is more
// than was allowed, they are given up and say so: those of rows that nobody wants any more, those
// for averages to come, those of rows that have numbers, the oldest, and last those that are kept
// as the best. Rows of another configuration have ended before.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/config/settings.h"
#include "agent/run/disk_space.h"
#include "agent/run/leases.h"
#include "agent/run/pins.h"
#include "agent/run/slice.h"
#include "agent/run/wanted.h"
#include "store/base/clock.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class DiskGuard {
 public:
  DiskGuard(const Clock& clock, state::Store& store, const stage::Stage& stage,
            const config::Policy& policy, const Wanted& wanted, const DiskSpace& space,
            const InFlight& in_flight, Averages& averages, BestKept& best, Leases& leases,
            Pins& pins);

  /// Every few seconds, and at once after look_again(); cheap in between. Goes on at once where the
  /// slice was cut. A store that takes nothing does not keep it from making room: its disk may be
  /// the one that is full. The leases go then, and their rows end in a later step(); a process that
  /// is killed before it finds them gone, and ends them too.
  Status step(std::int64_t run_id, Slice& slice);
  /// Leases were taken, or what they hold was deleted: room may be short before the next look.
  void look_again() { look_again_ = true; }
  /// The last step() was cut.
  bool due() const { return cut_; }

 private:
  /// What is missing, as of a look at the disk.
  struct Shortage {
    stage::Held held;
    std::uint64_t before = 0;  ///< held.bytes() at the look
    std::uint64_t free = 0;    ///< then
    std::uint64_t keep = 0;
    std::uint64_t budget = 0;
    bool low() const;
    bool ends() const;
    std::string reason() const;
  };
  /// How a row that nobody wants any more ends.
  struct End {
    state::EvaluationState state = state::EvaluationState::kSkipped;
    std::string reason;
  };
  /// All rows that hold one lease: it goes with all of them, or stays.
  struct Holders {
    std::string name;  ///< of the lease
    std::vector<state::Evaluation> rows;
  };
  Result<std::vector<Holders>> holders(std::int64_t run_id) const;
  bool is_busy(const Holders& lease) const;
  Status look(std::int64_t run_id, Slice& slice);
  Status end_unwanted(std::int64_t run_id, const std::set<std::string>& spared, Shortage& shortage,
                      Slice& slice);
  Result<std::optional<End>> end_of(const state::Evaluation& row,
                                    const std::set<std::int64_t>& passed_over) const;
  Result<std::set<std::int64_t>> passed_over(std::int64_t run_id,
                                             const std::vector<Holders>& leases) const;
  /// What may go, and how the rows end.
  struct Choice {
    std::vector<Holders> leases;               ///< in the order in which they go
    std::map<std::string, std::size_t> place;  ///< of a name in `leases`
    std::set<std::int64_t> passed_over;
    const Holders* find(const std::string& name) const;
  };
  Result<Choice> choice(std::int64_t run_id) const;
  Status give_up_rows(const Choice& choice, Shortage& shortage, Slice& slice);
  Status give_up_best(const Choice& choice, Shortage& shortage, Slice& slice);
  stage::Held::Files staying(const Choice& choice, const Shortage& shortage,
                             const std::string& but = "") const;
  Status give_up_all_of(const std::string& name, const Choice& choice, Shortage& shortage,
                        Slice& slice);
  Result<std::vector<End>> ends_for_room(const Holders& lease,
                                         const std::set<std::int64_t>& passed_over,
                                         const Shortage& shortage) const;
  Status give_up(const Holders& lease, const std::vector<End>& ends, Shortage& shortage);
  Result<bool> end_or_owe(const state::Evaluation& row, const End& end, const Shortage& shortage);
  Status end_row(const state::Evaluation& row, const End& end);
  Status end_owed();

  const Clock& clock_;
  state::Store& store_;
  const stage::Stage& stage_;
  const config::Policy& policy_;
  const Wanted& wanted_;
  const DiskSpace& space_;
  const InFlight& in_flight_;
  Averages& averages_;
  BestKept& best_;
  Leases& leases_;
  Pins& pins_;
  MonotonicTime guarded_at_{};
  MonotonicTime budget_due_{};
  bool cut_ = false;
  /// Somebody wants these leases, an earlier slice of this shortage found.
  std::set<std::string> wanted_leases_;
  bool look_again_ = false;
  /// Rows whose leases went before the store could be told, and how they end.
  std::map<std::int64_t, End> owed_;
};

}  // namespace evalcar::run
