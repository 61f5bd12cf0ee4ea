// Which leases are needed: those of averages to come and of the best are known anew, rows of
// another configuration hand theirs on or end, and what nobody needs then is removed.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "agent/run/averages.h"
#include "agent/run/best_kept.h"
#include "agent/run/surroundings.h"
#include "agent/run/unwanted.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class NeededLeases {
 public:
  NeededLeases(const Surroundings& around, Averages& averages, BestKept& best,
               const KeptForBest& kept, UnwantedRows& unwanted, Leftovers& leftovers)
      : around_(around),
        averages_(averages),
        best_(best),
        kept_(kept),
        unwanted_(unwanted),
        leftovers_(leftovers) {}

  struct Turn {
    bool known = false;      ///< what nobody needs is gone; false: a slice was cut, call again
    bool one_waits = false;  ///< a row was handed a lease, and waits since
  };
  /// `torn_steps` (Recorder::torn_steps): absent while not all that was seen is recorded.
  Result<Turn> step(std::int64_t run_id, const std::optional<std::set<std::int64_t>>& torn_steps,
                    bool recorded);

 private:
  Result<std::set<std::string>> needed_names(std::int64_t run_id) const;

  const Surroundings& around_;
  Averages& averages_;
  BestKept& best_;
  const KeptForBest& kept_;
  UnwantedRows& unwanted_;
  Leftovers& leftovers_;
};

}  // namespace evalcar::run
