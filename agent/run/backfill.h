// `evalcar backfill`: what the policy or a cadence passed over is measured after all.
#pragma once

#include <cstdint>

#include "agent/request/request.h"
#include "agent/run/disk_view.h"
#include "agent/run/leases.h"
#include "agent/run/recorder.h"
#include "agent/run/wanted.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Rows of today's configuration that ended unmeasured because a newer checkpoint came or a cadence
/// left theirs out, and whose weights are still the ones that lie in the output directory: they
/// wait again, with a lease, behind newer ones. Not those that a person cancelled. Marks some
/// hundreds at a time (Answer::more); done twice it does nothing.
request::Answer backfill(state::Store& store, const Wanted& wanted, const Recorder& recorder,
                         const DiskView& view, Leases& leases, std::int64_t run_id);

}  // namespace evalcar::run
