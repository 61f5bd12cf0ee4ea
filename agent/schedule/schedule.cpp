#include "agent/schedule/schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
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

/// Of each kind and series, how late a higher step was written that could take the place of others.
class Overtaking {
 public:
  explicit Overtaking(std::span<const Candidate> waiting) {
    for (const Candidate& c : waiting) {
      if (!c.ready || c.failed) continue;
      auto& latest = latest_[{c.kind, c.series}].try_emplace(c.step, c.written_ns).first->second;
      latest = std::max(latest, c.written_ns);
    }
    for (auto& [series, from_step] : latest_) {
      std::int64_t latest = std::numeric_limits<std::int64_t>::min();
      for (auto step = from_step.rbegin(); step != from_step.rend(); ++step) {
        latest = step->second = std::max(latest, step->second);
      }
    }
  }
  bool has_overtaken(const Candidate& c) const {
    const auto series = latest_.find({c.kind, c.series});
    if (series == latest_.end()) return false;
    const auto above = series->second.upper_bound(c.step);
    return above != series->second.end() &&
           is_newer({above->first, above->second}, {c.step, c.written_ns});
  }

 private:
  using FromStep = std::map<std::int64_t, std::int64_t>;  ///< of that step and all above it
  std::map<std::pair<std::string, std::string>, FromStep> latest_;
};

/// Why another save is the one of its epoch: the one before or after it is nearer to the epoch's
/// end. Where both are as near, it is the earlier one.
std::string nearer_to_epoch_end(const Occasion& save) {
  if (!save.epoch.has_value() || *save.epoch <= 0 || save.save_steps <= 0) return "";
  const double steps_per_epoch = static_cast<double>(save.step) / *save.epoch;
  const double number = std::max(1.0, std::round(*save.epoch));
  const auto end = static_cast<std::int64_t>(std::llround(number * steps_per_epoch));
  const std::int64_t distance = std::abs(save.step - end);
  const std::int64_t before = std::abs(save.step - save.save_steps - end);
  const std::int64_t after = std::abs(save.step + save.save_steps - end);
  if (distance < before && distance <= after) return "";
  const std::int64_t other = save.step + (after < before ? save.save_steps : -save.save_steps);
  return "evaluate.eval_strategy is \"epoch\", and the save of step " + std::to_string(other) +
         " is nearer to the end of epoch " + std::to_string(static_cast<std::int64_t>(number)) +
         " (step " + std::to_string(end) + ")";
}

}  // namespace

bool is_newer(const Save& one, const Save& other) {
  return one.step > other.step && one.written_ns >= other.written_ns;
}

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
  const Overtaking newest(policy == config::Policy::kLatest ? waiting
                                                            : std::span<const Candidate>());
  for (const Candidate& c : sorted) {
    if (!c.asked && newest.has_overtaken(c)) {
      choice.superseded.push_back(c.id);
    } else if (!choice.next.has_value() && c.ready) {
      choice.next = c.id;
    }
  }
  return choice;
}

std::optional<std::int64_t> newer_than(const Save& running, std::span<const Candidate> waiting) {
  std::optional<std::int64_t> newest;
  for (const Candidate& c : waiting) {
    if (!c.ready || c.tried || !is_newer({c.step, c.written_ns}, running)) continue;
    newest = std::max(c.step, newest.value_or(c.step));
  }
  return newest;
}

std::string why_not_wanted(const Cadence& cadence, const Occasion& occasion) {
  if (cadence.strategy == config::EvalStrategy::kNo) return "evaluate.eval_strategy is \"no\"";
  if (occasion.is_last) return "";
  if (cadence.strategy == config::EvalStrategy::kEpoch) {
    if (const std::string reason = nearer_to_epoch_end(occasion); !reason.empty()) return reason;
  } else if (cadence.eval_steps > 0 && occasion.step % cadence.eval_steps != 0) {
    return "evaluate.eval_steps = " + std::to_string(cadence.eval_steps) +
           " does not divide step " + std::to_string(occasion.step);
  }
  if (cadence.every_nth > 1 && occasion.position % cadence.every_nth != 0) {
    return "evaluate.every_nth = " + std::to_string(cadence.every_nth) +
           " leaves this checkpoint out";
  }
  return "";
}

std::string why_tasks_not_wanted(const config::TaskCadence& cadence, const std::string& tasks,
                                 const Occasion& occasion) {
  if (occasion.is_last) return "";
  if (cadence.eval_steps > 0 && occasion.step % cadence.eval_steps != 0) {
    return "evaluate.task_eval_steps = " + std::to_string(cadence.eval_steps) + " of " + tasks +
           " does not divide step " + std::to_string(occasion.step);
  }
  if (cadence.every_nth > 1 && occasion.position_of_wanted % cadence.every_nth != 0) {
    return "evaluate.task_every_nth = " + std::to_string(cadence.every_nth) + " of " + tasks +
           " leaves this checkpoint out";
  }
  return "";
}

}  // namespace evalcar::schedule
