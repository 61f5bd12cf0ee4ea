#include "agent/run/agent_end.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "agent/run/obstacles.h"
#include "agent/run/retry_pause.h"

namespace evalcar::run {
namespace {

/// Of an agent that nobody trains beside any more, and that gets on with nothing.
constexpr std::chrono::hours kHopeless{1};

}  // namespace

AgentEnd::AgentEnd(const Surroundings& around, const config::Settings& settings,
                   AgentOptions options, const Directories& directories,
                   const supervise::Supervisor& supervisor, const DataWatch& data,
                   Complaints& complaints)
    : around_(around),
      settings_(settings),
      options_(options),
      directories_(directories),
      supervisor_(supervisor),
      data_(data),
      complaints_(complaints),
      started_at_(around.clock.monotonic_now()),
      got_on_at_(started_at_),
      looked_at_(started_at_) {}

void AgentEnd::note_measured() { got_on_at_ = around_.clock.monotonic_now(); }

AgentEnd::Turn AgentEnd::step(bool works) {
  const bool hopeless = is_hopeless(works);
  if (works || options_.serve) return {};
  if (!supervisor_.busy()) {
    const Turn turn = look_at_rows();
    if (turn.exit_code.has_value()) return turn;
    if (turn.one_waits) return turn;
  }
  if (is_stuck()) {
    spdlog::error("{}", supervisor_.stuck());
    spdlog::error(kLeftWaiting);
    return {kFailed};
  }
  if (hopeless) {
    spdlog::error("training is over, and for more than an hour nothing could be measured");
    spdlog::error(kLeftWaiting);
    return {kFailed};
  }
  return {};
}

/// Nothing more is expected of this directory.
bool AgentEnd::may_end(const OutputDirectory& directory) const {
  if (options_.once || directory.training_over()) return true;
  const auto& pause = settings_.watch.exit_when_quiet;
  return pause.has_value() &&
         around_.clock.monotonic_now() - std::max(directory.last_news(), started_at_) >= *pause;
}

bool AgentEnd::all_may_end() const {
  return std::ranges::all_of(directories_.all(), [this](const auto& one) { return may_end(*one); });
}

/// Everything that was there is done.
AgentEnd::Turn AgentEnd::look_at_rows() {
  for (const auto& directory : directories_.all()) {
    if (!may_end(*directory)) return {};
    const auto quiet = directory->quiet();
    if (!quiet.has_value() || !*quiet) return {};
  }
  // The one look at the data, if something may be completed by it.
  const bool looked = completed_at_ >= 0 && (!directories_.any_in_part() || data_.looks() > 0);
  const bool up_to_date = looked && completed_at_ == data_.looks();
  if (!around_.evaluator_program.empty() && !up_to_date) return {};
  Turn turn;
  for (const auto& directory : directories_.all()) {
    if (options_.once) break;  // training may go on
    const auto last = directory->take_up_last();
    if (!last.has_value()) {
      complaints_.take(directory->path(), last.error());
      return turn;
    }
    turn.one_waits |= *last;
  }
  if (turn.one_waits) return turn;
  for (const auto& directory : directories_.all())
    complaints_.take(directory->path(), directory->close_torn());
  turn.exit_code = code_of_rows();
  return turn;
}

/// Nothing more can be measured, and nobody trains whom waiting would serve.
bool AgentEnd::is_stuck() const {
  const auto stuck = supervisor_.stuck_for();
  return stuck.has_value() && *stuck >= kLongestObstacle && all_may_end();
}

/// A device or data that stay away: a job's other GPUs, and a trainer that waits for the last
/// scores, are not kept for that.
bool AgentEnd::is_hopeless(bool works) {
  const MonotonicTime now = around_.clock.monotonic_now();
  const auto passed = now - std::exchange(looked_at_, now);
  if (works) {
    got_on_at_ += passed;  // no time of an evaluation counts
    return false;
  }
  for (const auto& directory : directories_.all()) {
    got_on_at_ = std::max(got_on_at_, may_end(*directory) ? directory->last_news() : now);
  }
  const auto longest_try = pause_after(settings_.limits, settings_.limits.attempts);
  return now - got_on_at_ >= kHopeless + longest_try;
}

int AgentEnd::code_of_rows() const {
  const auto tally = directories_.tally();
  return tally.has_value() ? exit_code_of(*tally) : kFailed;
}

}  // namespace evalcar::run
