#include "agent/report/pace.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "agent/report/sparkline.h"

namespace evalcar::report {
namespace {

std::string formatted(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string two_units(std::int64_t count, std::int64_t size, const char* unit, const char* smaller,
                      std::int64_t smaller_size) {
  std::string text = std::to_string(count / size) + " " + unit;
  if (const std::int64_t rest = count % size / smaller_size; rest > 0) {
    text += " " + std::to_string(rest) + " " + smaller;
  }
  return text;
}

}  // namespace

void Pace::note(const protocol::Progress& progress, MonotonicTime now) {
  const bool same_stage = work_.has_value() && work_->stage == progress.stage &&
                          work_->total == progress.total && progress.done >= work_->done;
  if (!same_stage) {
    first_done_ = progress.done;
    since_ = now;
  }
  work_ = WorkDone{progress.stage, progress.task, progress.done, progress.total, {}, {}};
  const double seconds = std::chrono::duration<double>(now - since_).count();
  const std::int64_t done = progress.done - first_done_;
  if (done <= 0 || seconds <= 0) return;
  work_->per_second = static_cast<double>(done) / seconds;
  if (progress.total < progress.done) return;
  work_->seconds_left = static_cast<double>(progress.total - progress.done) / *work_->per_second;
}

std::string work_text(const WorkDone& work, bool with_bar) {
  std::string text = work.stage;
  if (!work.task.empty()) text += " " + work.task;
  if (work.total > 0) {
    const double part = static_cast<double>(work.done) / static_cast<double>(work.total);
    if (with_bar)
      text += " " + bar(part) + formatted(" %.0f %%", 100 * std::floor(100 * part) / 100);
    text += " " + std::to_string(work.done) + "/" + std::to_string(work.total);
  }
  // Loading counts bytes, everything else documents.
  if (work.per_second.has_value() && work.stage != "loading") {
    text += formatted(*work.per_second < 10 ? ", %.2f/s" : ", %.0f/s", *work.per_second);
  }
  if (work.seconds_left.has_value()) text += ", " + duration_text(*work.seconds_left) + " left";
  return text;
}

std::string duration_text(double seconds) {
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 60 * kMinute;
  constexpr std::int64_t kDay = 24 * kHour;
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < kMinute) return std::to_string(whole) + " s";
  if (whole < kHour) return two_units(whole, kMinute, "min", "s", 1);
  if (whole < kDay) return two_units(whole, kHour, "h", "min", kMinute);
  return two_units(whole, kDay, "d", "h", kHour);
}

}  // namespace evalcar::report
