// Which device this process takes, whom it would take it from, and what there is to take.
#pragma once

#include <ostream>
#include <string>

#include "evaluator/engine/engine.h"

namespace evalcar::service {

/// Refuses a GPU that others compute on and a GPU behind MPS (kUnavailable "device busy: …"), and
/// one that the driver lost ("device lost while …"). Whether others use it cannot be told without
/// the driver's management library: `err` is told so. The CPU is always free, and with `share`
/// (evaluate.share_gpu) so is everything else.
Status check_device_is_free(const engine::DeviceDescription& device, bool share, std::ostream& err);

/// `evalcar-evaluator devices`: one line {"devices": {…}} with the versions of torch, NCCL and the
/// driver, and each GPU: index, name, uuid, capability, memory, and who computes on it. 0 always: a
/// machine without a GPU is none that is broken.
int run_devices(std::ostream& out);

}  // namespace evalcar::service
