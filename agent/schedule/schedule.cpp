#include "agent/schedule/schedule.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace evalcar::schedule {
namespace {

/// Regular before EMA before averages.
int rank_of(const std::string& kind) { return kind == "regular" ? 0 : kind == "ema" ? 1 : 2; }

/// Oldest first.
auto order_of(const Candidate& c) { return std::make_tuple(c.step, rank_of(c.kind), c.id); }

/// Newest first.
auto newest_order_of(const Candidate& c) { return std::make_tuple(-c.step, rank_of(c.kind), c.id); }

}  // namespace

Choice choose(std::span<const Candidate> waiting, config::Policy policy) {
  Choice choice;
  std::vector<Candidate> sorted(waiting.begin(), waiting.end());
  if (policy == config::Policy::kEvery) {
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return order_of(a) < order_of(b); });
  } else {
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return newest_order_of(a) < newest_order_of(b); });
  }
  std::map<std::string, std::int64_t> newest;  // of each kind
  for (const Candidate& c : sorted) {
    const auto first = newest.emplace(c.kind, c.step).first;
    if (policy == config::Policy::kLatest && first->second != c.step) {
      choice.superseded.push_back(c.id);
    } else if (!choice.next.has_value() && c.ready) {
      choice.next = c.id;
    }
  }
  return choice;
}

std::string why_not_wanted(const Cadence& cadence, std::int64_t step, std::int64_t position) {
  if (!cadence.enabled) return "evaluate.eval_strategy is \"no\"";
  if (cadence.eval_steps > 0 && step % cadence.eval_steps != 0) {
    return "evaluate.eval_steps = " + std::to_string(cadence.eval_steps) +
           " does not divide step " + std::to_string(step);
  }
  if (cadence.every_nth > 1 && position % cadence.every_nth != 0) {
    return "evaluate.every_nth = " + std::to_string(cadence.every_nth) +
           " leaves this checkpoint out";
  }
  return "";
}

}  // namespace evalcar::schedule
