#include "agent/supervise/patience.h"

#include <algorithm>
#include <utility>

namespace evalcar::supervise {
namespace {

using std::chrono::milliseconds;

std::string seconds_between(MonotonicTime from, MonotonicTime to) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(to - from).count()) + " s";
}

/// "docvqa_val, 120 of 5349": how far it had come.
std::string describe(const protocol::Progress& progress) {
  return (progress.task.empty() ? "" : progress.task + ", ") + std::to_string(progress.done) +
         " of " + std::to_string(progress.total);
}

}  // namespace

Patience::Patience(const Clock& clock, Timeouts timeouts, milliseconds cancel_grace)
    : clock_(clock), timeouts_(std::move(timeouts)), cancel_grace_(cancel_grace) {}

void Patience::enter(Awaited awaited, std::string stage) {
  awaited_ = awaited;
  stage_ = std::move(stage);
  stage_since_ = clock_.monotonic_now();
}

void Patience::expect_advance() {
  heard_at_ = advanced_at_ = clock_.monotonic_now();
  progress_ = {};
}

void Patience::heard() { heard_at_ = clock_.monotonic_now(); }

void Patience::note(const protocol::Progress& progress) {
  if (progress.stage != stage_) enter(awaited_, progress.stage);
  if (progress.tick > progress_.tick) advanced_at_ = clock_.monotonic_now();
  const std::uint64_t highest = std::max(progress.tick, progress_.tick);
  progress_ = progress;
  progress_.tick = highest;
}

milliseconds Patience::timeout(const std::string& name) const {
  const auto found = timeouts_.find(name);
  return found == timeouts_.end() ? std::chrono::hours(24) : found->second;
}

std::optional<MonotonicTime> Patience::stage_deadline() const {
  if (awaited_ == Awaited::kNothing) return std::nullopt;
  return stage_since_ + (awaited_ == Awaited::kCancel ? cancel_grace_ : timeout(stage_));
}

std::optional<MonotonicTime> Patience::silence_deadline() const {
  if (awaited_ != Awaited::kWork) return std::nullopt;
  return heard_at_ + timeout("heartbeat");
}

std::optional<MonotonicTime> Patience::stuck_deadline() const {
  if (awaited_ != Awaited::kWork) return std::nullopt;
  return advanced_at_ + timeout("stuck");
}

std::optional<MonotonicTime> Patience::deadline() const {
  std::optional<MonotonicTime> next;
  for (const auto& one : {stage_deadline(), silence_deadline(), stuck_deadline()}) {
    if (one.has_value()) next = std::min(*one, next.value_or(*one));
  }
  return next;
}

std::optional<std::string> Patience::lost() const {
  const MonotonicTime now = clock_.monotonic_now();
  const auto is_over = [now](const std::optional<MonotonicTime>& deadline) {
    return deadline.has_value() && now >= *deadline;
  };
  if (is_over(stage_deadline())) {
    return "the evaluator spent " + seconds_between(stage_since_, now) + " on stage \"" + stage_ +
           "\" (limits.stage_timeouts)";
  }
  if (is_over(silence_deadline())) {
    return "the evaluator was silent for " + seconds_between(heard_at_, now) + " at stage \"" +
           stage_ + "\" (limits.stage_timeouts, heartbeat)";
  }
  if (is_over(stuck_deadline())) {
    return "the evaluator is alive, but has not advanced for " +
           seconds_between(advanced_at_, now) + " at stage \"" + stage_ + "\" (" +
           describe(progress_) +
           "): does the device or a file system hang? (limits.stage_timeouts, stuck)";
  }
  return std::nullopt;
}

}  // namespace evalcar::supervise
