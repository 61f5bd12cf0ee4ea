// What must hold of a checkpoint's folder, whatever is in its files.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "store/checkpoint/plan.h"

namespace evalcar::fuzz {

/// Judges and plans the folder's regular weights. Aborts unless a plan that is made reads exactly
/// as many bytes of each tensor as it says, and those are at most `most_bytes`: what the input's
/// size allows.
inline void check_checkpoint(const FileSystem& files, const std::string& dir,
                             std::size_t most_bytes,
                             const checkpoint::LayoutOptions& options = {}) {
  const auto report = checkpoint::inspect_layout(files, dir, options);
  const auto plan = checkpoint::make_plan(files, dir, checkpoint::WeightsKind::kRegular, options);
  if (!plan.has_value()) return;
  if (!report.has_value()) std::abort();
  const auto reader = checkpoint::PlanReader::open(files, *plan);
  if (!reader.has_value()) std::abort();
  for (std::size_t i = 0; i < plan->tensors.size(); ++i) {
    if (plan->tensors[i].bytes() > most_bytes) std::abort();
    std::vector<std::byte> bytes(plan->tensors[i].bytes());
    if (!reader->read(i, bytes).has_value()) std::abort();
  }
}

}  // namespace evalcar::fuzz
