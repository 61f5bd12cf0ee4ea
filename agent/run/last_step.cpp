#include "agent/run/last_step.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace evalcar::run {
namespace {

using std::chrono::nanoseconds;

constexpr std::chrono::seconds kPause{1};
constexpr const char* kMarkFile = "trainer_state.json";
/// The Hugging Face Trainer writes it behind the weights and before its mark.
constexpr const char* kArguments = "training_args.bin";
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

LastStep::LastStep(const Surroundings& around, const Wanted& wanted, const DiskView& view,
                   std::string output_dir)
    : around_(around),
      wanted_(wanted),
      view_(view),
      output_dir_(std::move(output_dir)),
      due_(around.clock.monotonic_now()) {}

bool LastStep::reached(std::int64_t run_id, std::optional<std::int64_t> snapshot_ns) {
  const MonotonicTime now = around_.clock.monotonic_now();
  if (now < due_) return false;
  due_ = now + kPause;
  const auto& there_at_first = first_seen(run_id).marked_ns;
  const std::optional<Mark> mark = mark_of_newest();
  if (!mark.has_value() || snapshot_ns.value_or(mark->written_ns) > mark->written_ns ||
      another_is_later(*mark)) {
    waits_for_.reset();
    return false;
  }
  const auto known = there_at_first.find(mark->step);
  const bool was_there = known != there_at_first.end() && known->second == mark->written_ns;
  if (!was_there && is_written_last(*mark)) return true;
  if (waits_for_ != mark) {
    begin_to_wait(*mark, was_there ? "was there before" : "may be a copy: its files are newer");
  }
  return now - quiet_since_ >= quiet_;
}

/// Noted at the first call. Of another run, as where another file system was mounted, anew.
const FirstSeen& LastStep::first_seen(std::int64_t run_id) {
  FirstSeenOf& all = around_.first_seen != nullptr ? *around_.first_seen : own_;
  const auto known = all.find(output_dir_);
  if (known != all.end() && known->second.run_id == run_id) return known->second;
  FirstSeen seen{run_id, {}};
  for (const auto& [step, folder] : view_.present) {
    const auto marked_ns = written_ns(folder, kMarkFile);
    if (marked_ns.has_value()) seen.marked_ns[step] = *marked_ns;
  }
  return all.insert_or_assign(output_dir_, std::move(seen)).first->second;
}

std::optional<std::int64_t> LastStep::written_ns(const std::string& folder,
                                                 const char* file) const {
  const auto info = around_.files.info_followed(join_path(folder, file));
  return info.has_value() ? std::optional(info->mtime_ns) : std::nullopt;
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
    auto info = around_.files.info_followed(join_path(path, kMarkFile));
    if (!info.has_value()) info = around_.files.info_followed(path);
    return info.has_value() && info->mtime_ns > mark.written_ns;
  });
}

/// As by the trainer; a copy need not keep that order.
bool LastStep::is_written_last(const Mark& mark) const {
  if (view_.written_at().at(mark.step) > mark.written_ns) return false;
  const auto folder = view_.present.find(mark.step);
  if (folder == view_.present.end()) return false;
  return written_ns(folder->second, kArguments).value_or(mark.written_ns) <= mark.written_ns;
}

void LastStep::begin_to_wait(const Mark& mark, const char* why) {
  waits_for_ = mark;
  quiet_since_ = around_.clock.monotonic_now();
  quiet_ = quiet_time(view_.written_at());
  spdlog::info(
      "step {} says that it is the last of its training, and {}: training is over if nothing is "
      "written for {} min (watch.exit_at_max_steps)",
      mark.step, why, std::chrono::duration_cast<std::chrono::minutes>(quiet_).count());
}

}  // namespace evalcar::run
