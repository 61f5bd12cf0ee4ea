#include "agent/run/batch_size.h"

#include <algorithm>

#include "store/protocol/messages.h"

namespace evalcar::run {
namespace {

/// What the evaluator takes on its own on a CPU (engine.cpp).
constexpr std::int64_t kAutoBatch = 32;

}  // namespace

std::int64_t asked_batch_size(const config::Settings& settings, const state::Evaluation& row) {
  const std::int64_t configured = settings.evaluate.batch_size;
  const std::int64_t allowed = row.settings.requested != 0 ? row.settings.batch_size : 0;
  if (configured == 0 || allowed == 0) return std::max(configured, allowed);
  return std::min(configured, allowed);
}

std::int64_t next_batch_size(std::int64_t asked, const state::Evaluation& row,
                             const std::vector<state::Attempt>& attempts,
                             std::int64_t most_attempts) {
  std::int64_t out_of_memory = 0;
  std::int64_t failures = row.failures;
  for (auto attempt = attempts.rbegin(); attempt != attempts.rend() && failures > 0; ++attempt) {
    if (attempt->outcome != "failed" || protocol::is_of_surroundings(attempt->error_kind)) continue;
    --failures;
    out_of_memory += attempt->error_kind == protocol::kOutOfMemory ? 1 : 0;
  }
  if (out_of_memory == 0) return asked;
  if (row.failures + 1 >= most_attempts) return 1;
  const std::int64_t base = asked > 0 ? asked : kAutoBatch;
  return std::max<std::int64_t>(1, base >> std::min<std::int64_t>(2 * out_of_memory, 62));
}

}  // namespace evalcar::run
