#include "agent/run/data_watch.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/run/evaluation_settings.h"
#include "agent/run/warn_once.h"

namespace evalcar::run {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::minutes kLongestDataPause{5};
/// A child's end shows on no descriptor.
constexpr milliseconds kChildPause{50};

milliseconds limit_of(const config::LimitSettings& limits) {
  const auto preparing = limits.stage_timeouts.find("preparing");
  return preparing == limits.stage_timeouts.end() ? milliseconds(std::chrono::hours(1))
                                                  : milliseconds(preparing->second);
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

DataWatch::DataWatch(const Surroundings& around, const config::Settings& settings)
    : around_(around),
      settings_(settings),
      pause_(settings.limits.retry_delay),
      next_(around.clock.monotonic_now()) {}

bool DataWatch::due(bool needed) const {
  if (around_.evaluator_program.empty() || check_.has_value()) return false;
  return needed && around_.clock.monotonic_now() >= next_;
}

bool DataWatch::step(bool needed) {
  if (due(needed || doubted_ || !warning().empty())) start();
  if (!check_.has_value()) return false;
  const auto report = check_->poll();
  if (!report.has_value()) return false;
  check_.reset();
  take(*report);
  return true;
}

void DataWatch::start() {
  auto started =
      supervise::DataCheck::start(check_command(around_.evaluator_program, settings_.evaluate),
                                  around_.clock, limit_of(settings_.limits));
  if (started.has_value()) {
    check_.emplace(std::move(started).value());
  } else {
    take(started.error());
  }
}

void DataWatch::take(const Result<supervise::DataReport>& report) {
  ++looks_;
  doubted_ = improved_ = false;
  if (!report.has_value()) {
    warn_once(trouble_, "the tasks' data could not be looked at: " + report.error().message);
  } else {
    trouble_.clear();
    for (const auto& [task, data] : *report) {
      const auto before = report_.has_value() ? report_->find(task) : report->end();
      const bool known = report_.has_value() && before != report_->end();
      if (data.error.empty()) {
        const bool missed = known && !before->second.error.empty();
        if (missed) spdlog::info("{}: its data are there now", task);
        improved_ |= known && before->second != data;
      } else if (!known || before->second.error != data.error) {
        spdlog::error("{} cannot be measured: {}", task, data.error);
      }
    }
    report_ = *report;
  }
  pause_ = improved_ ? milliseconds(settings_.limits.retry_delay)
                     : std::min<milliseconds>(kLongestDataPause, 2 * pause_);
  next_ = around_.clock.monotonic_now() + pause_;
}

void DataWatch::doubt() {
  if (doubted_) return;
  doubted_ = true;
  next_ = around_.clock.monotonic_now() + pause_;
}

void DataWatch::hurry() {
  doubted_ = true;
  pause_ = settings_.limits.retry_delay;
  next_ = around_.clock.monotonic_now();
}

bool DataWatch::all_missing() const {
  return report_.has_value() && !report_->empty() &&
         std::all_of(report_->begin(), report_->end(),
                     [](const auto& task) { return !task.second.error.empty(); });
}

std::string DataWatch::warning() const {
  std::string text;
  if (!report_.has_value()) return text;
  for (const auto& [task, data] : *report_) {
    if (data.error.empty()) continue;
    text.append(text.empty() ? "" : "; ").append(task).append(" cannot be measured: ");
    text.append(one_line(data.error));
  }
  return text;
}

milliseconds DataWatch::until_due(bool needed) const {
  if (check_.has_value()) return kChildPause;
  if (around_.evaluator_program.empty() || !(needed || doubted_ || !warning().empty())) {
    return kLongestDataPause;
  }
  return std::max(milliseconds(0),
                  std::chrono::ceil<milliseconds>(next_ - around_.clock.monotonic_now()));
}

void DataWatch::add_descriptors(std::vector<pollfd>& descriptors) const {
  if (check_.has_value()) check_->add_descriptors(descriptors);
}

}  // namespace evalcar::run
