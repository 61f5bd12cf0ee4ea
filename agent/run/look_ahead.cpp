#include "agent/run/look_ahead.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <string>
#include <string_view>

#include "agent/run/rows.h"
#include "agent/schedule/schedule.h"

namespace evalcar::run {
namespace {

/// Between two looks without news: tries become due.
constexpr std::chrono::seconds kAheadPause{5};
constexpr int kMostEnds = 2;

struct Choice {
  state::Evaluation row;
  std::string dir;  ///< "": it holds no lease, so nobody knows what will be read
};

/// What would be begun first of this directory.
Result<std::optional<Choice>> choice_of(OutputDirectory& directory, config::Policy policy) {
  EVALCAR_ASSIGN_OR_RETURN(const auto waiting, directory.waiting());
  const auto next = schedule::choose(waiting, policy).next;
  if (!next.has_value()) return std::optional<Choice>();
  EVALCAR_ASSIGN_OR_RETURN(auto row, directory.store().read().evaluation(*next));
  std::string dir = directory.leased_at(row);
  return std::optional<Choice>({std::move(row), std::move(dir)});
}

/// Of other tasks, of another cadence.
bool are_same_weights(const state::Evaluation& one, const state::Evaluation& other) {
  return one.run == other.run && one.checkpoint_id == other.checkpoint_id && one.kind == other.kind;
}

bool ends_process(std::string_view kind) {
  return kind == "evaluator_died" || kind == "timeout" || kind == protocol::kOutOfMemory ||
         protocol::is_device_fault(kind);
}

}  // namespace

Status LookAhead::step(const Directories& directories, std::size_t first,
                       const state::Evaluation& running) {
  if (!settings_.prefetch || ends_ >= kMostEnds) return {};
  if (!supervisor_.evaluating() || running.failures > 0) return {};
  const MonotonicTime now = clock_.monotonic_now();
  const bool recent = looked_at_.has_value() && now - *looked_at_ < kAheadPause;
  if (recent && !directories.any_news_since(*looked_at_)) return {};
  looked_at_ = now;
  const Directories::All& all = directories.all();
  std::optional<Choice> next;
  for (std::size_t i = 0; i < all.size() && !next.has_value(); ++i) {
    EVALCAR_ASSIGN_OR_RETURN(next, choice_of(*all[(first + i) % all.size()], settings_.policy));
  }
  if (!next.has_value() || next->dir.empty()) return {};
  const state::Evaluation& row = next->row;
  if (row.failures > 0 || are_same_weights(row, running)) return {};
  const protocol::Prefetch wanted{next->dir, row.kind, row.dtype, settings_.base_model};
  if (told_ == wanted) return {};
  spdlog::debug("{}: read ahead while {} is evaluated", title(row), title(running));
  supervisor_.prefetch(wanted);
  told_ = wanted;
  return {};
}

void LookAhead::note(const supervise::JobEvent& event) {
  if (!told_.has_value()) return;
  if (std::holds_alternative<protocol::EvaluationResult>(event)) ends_ = 0;
  const auto* failure = std::get_if<supervise::JobFailed>(&event);
  if (failure == nullptr || !ends_process(failure->kind)) return;
  ends_ = failure->kind == protocol::kOutOfMemory ? kMostEnds : ends_ + 1;
  if (ends_ < kMostEnds) return;
  spdlog::warn(
      "the evaluator ended again, or for memory, while it read the next checkpoint ahead ({}): "
      "none is read ahead until a reload or a restart (evaluate.prefetch)",
      failure->kind);
}

void LookAhead::end() {
  told_.reset();
  looked_at_.reset();
}

}  // namespace evalcar::run
