// What commands ask of an output directory (retry, backfill, cancel, pin, prune) is done and
// answered.
#pragma once

#include <functional>

#include "agent/request/request.h"
#include "agent/run/current_run.h"
#include "agent/run/disk_view.h"
#include "agent/run/leases.h"
#include "agent/run/pins.h"
#include "agent/run/recorder.h"
#include "agent/run/surroundings.h"
#include "agent/run/wanted.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Not thread-safe.
class Answers {
 public:
  /// All must outlive it.
  struct Parts {
    const Surroundings& around;
    state::Store& store;
    const CurrentRun& run;
    const Wanted& wanted;
    const Recorder& recorder;
    const DiskView& view;
    Leases& leases;
    Pins& pins;
    InFlight& in_flight;
  };

  /// `looked_at`: whether what lies in the directory is known, and so is which of it is the newest.
  Answers(const Parts& parts, std::function<bool()> looked_at)
      : parts_(parts), looked_at_(std::move(looked_at)) {}

  request::Answer to(const request::Request& asked);
  /// Whether a person asked for another try since the last call.
  bool take_retry_asked() { return std::exchange(retry_asked_, false); }

 private:
  request::Answer answer(const request::Retry& retry);
  request::Answer answer(const request::Backfill& backfill);
  request::Answer answer(const request::Cancel& cancel);
  request::Answer answer(const request::Pin& pin);
  request::Answer answer(const request::Prune& prune);
  Status lease_retried(std::int64_t step);
  request::Answer not_looked_at() const;
  request::Answer no_run() const;

  Parts parts_;
  std::function<bool()> looked_at_;
  bool retry_asked_ = false;
};

}  // namespace evalcar::run
