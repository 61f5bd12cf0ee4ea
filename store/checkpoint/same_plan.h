// Whether what was read by one plan is what another one would read.
#pragma once

#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// The same tensors, from the same places of the same files, none of which was touched between the
/// two plans (device, inode, size, mtime and ctime: stricter than PlanReader::verify_unchanged(),
/// since nobody reads again). Reads nothing.
bool is_same_plan(const Plan& a, const Plan& b);

}  // namespace evalcar::checkpoint
