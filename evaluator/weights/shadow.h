// A checkpoint's weights beside the resident ones, whole and proved, before anybody asked for them.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <stop_token>

#include "evaluator/weights/arena.h"
#include "evaluator/weights/layout.h"
#include "evaluator/weights/load.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::weights {

/// What load() made of `plan`, and all that it made it from.
struct Shadow {
  Arena arena;
  WeightLayout layout;
  checkpoint::Plan plan;
  LoadReport report;
};

/// load() into an arena of its own, whose memory is taken here. Everything that load() checks is
/// checked; the errors are those of assign() and load(). Copies to a GPU go on a stream of their
/// own: what is computed meanwhile neither waits for them nor they for it.
Result<Shadow> read_shadow(const FileSystem& files, const checkpoint::Plan& plan,
                           const WeightLayout& layout, at::ScalarType dtype, at::Device device,
                           int threads, std::stop_token stop);

/// Whether load() by this plan, made just now, would put the very same into an arena: the plan, the
/// layout and the type are those of the shadow, and its files are still untouched.
bool is_current(const Shadow& shadow, const FileSystem& files, const checkpoint::Plan& plan,
                const WeightLayout& layout, at::ScalarType dtype, at::Device device);

}  // namespace evalcar::weights
