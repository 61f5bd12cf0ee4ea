#include "agent/run/last_step.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

namespace evalcar::run {
namespace {

using std::chrono::nanoseconds;

constexpr std::chrono::seconds kPause{1};
/// A training that starts beside the agent loads its model and data, and trains until it saves.
constexpr std::chrono::minutes kShortestQuiet{30};
constexpr std::chrono::hours kLongestQuiet{6};

/// Twice the longest pause between two checkpoints, within bounds: one that is saved every two
/// hours needs longer, and a break of days between two trainings is no pause of either.
nanoseconds quiet_time(const DiskView::WrittenAt& written_at) {
  std::vector<std::int64_t> times;
  for (const auto& [step, time] : written_at) times.push_back(time);
  std::sort(times.begin(), times.end());
  nanoseconds longest{};
  for (std::size_t i = 1; i < times.size(); ++i) {
    longest = std::max(longest, nanoseconds(times[i] - times[i - 1]));
  }
  return std::clamp<nanoseconds>(std::min<nanoseconds>(longest, kLongestQuiet) * 2, kShortestQuiet,
                                 kLongestQuiet);
}

}  // namespace

LastStep::LastStep(const FileSystem& files, const Clock& clock, const Wanted& wanted,
                   const DiskView& view, std::optional<std::int64_t> started_ns)
    : files_(files),
      clock_(clock),
      wanted_(wanted),
      view_(view),
      started_ns_(started_ns.value_or(nanoseconds(clock.wall_now().time_since_epoch()).count())),
      due_(clock.monotonic_now()) {}

bool LastStep::reached(std::optional<std::int64_t> snapshot_ns) {
  const MonotonicTime now = clock_.monotonic_now();
  if (now < due_) return false;
  due_ = now + kPause;
  const std::optional<Mark> mark = mark_of_newest();
  if (!mark.has_value() || snapshot_ns.value_or(mark->written_ns) > mark->written_ns ||
      another_is_later(*mark)) {
    waits_for_.reset();
    return false;
  }
  if (mark->written_ns >= started_ns_) return true;
  if (waits_for_ != mark) begin_to_wait(*mark);
  return now - quiet_since_ >= quiet_;
}

std::optional<LastStep::Mark> LastStep::mark_of_newest() const {
  const auto newest = view_.step_written_last();
  if (!newest.has_value()) return std::nullopt;
  const auto written_ns = wanted_.end_marked_at(*newest);
  if (!written_ns.has_value()) return std::nullopt;
  return Mark{*newest, *written_ns};
}

/// One that is being written, or was left torn after that.
bool LastStep::another_is_later(const Mark& mark) const {
  const DiskView::WrittenAt complete = view_.written_at();
  for (const auto& [key, told] : view_.told) {
    if (told.verdict == watch::Verdict::kWaiting) return true;
  }
  return std::ranges::any_of(view_.present, [&](const auto& there) {
    const auto& [step, path] = there;
    if (complete.contains(step)) return false;
    auto info = files_.info_followed(join_path(path, "trainer_state.json"));
    if (!info.has_value()) info = files_.info_followed(path);
    return info.has_value() && info->mtime_ns > mark.written_ns;
  });
}

void LastStep::begin_to_wait(const Mark& mark) {
  waits_for_ = mark;
  quiet_since_ = clock_.monotonic_now();
  quiet_ = quiet_time(view_.written_at());
  spdlog::info(
      "step {} says that it is the last of its training, and was there before: training is over if "
      "nothing is written for {} min (watch.exit_at_max_steps)",
      mark.step, std::chrono::duration_cast<std::chrono::minutes>(quiet_).count());
}

}  // namespace evalcar::run
