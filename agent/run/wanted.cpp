#include "agent/run/wanted.h"

#include <algorithm>
#include <set>

#include "agent/run/evaluation_settings.h"
#include "agent/schedule/schedule.h"

namespace evalcar::run {
namespace {

std::vector<std::string> task_set(std::vector<std::string> tasks) {
  std::sort(tasks.begin(), tasks.end());
  tasks.erase(std::unique(tasks.begin(), tasks.end()), tasks.end());
  return tasks;
}

}  // namespace

Wanted::Wanted(const config::EvaluateSettings& settings, const state::Reader& rows,
               const DiskView& view)
    : settings_(settings),
      rows_(rows),
      view_(view),
      wanted_(evaluation_settings(settings)),
      tasks_(task_set(wanted_.tasks)),
      identity_(state::settings_sha256(wanted_, settings.dtype)),
      average_identity_(state::settings_sha256(settings_of("average"), settings.dtype)) {}

protocol::EvaluationSettings Wanted::settings_of(const std::string& kind) const {
  protocol::EvaluationSettings settings = wanted_;
  if (kind == "average") settings.average_last = settings_.average_last;
  return settings;
}

state::NewEvaluation Wanted::evaluation_of(std::int64_t checkpoint_id,
                                           const std::string& kind) const {
  state::NewEvaluation wanted;
  wanted.checkpoint_id = checkpoint_id;
  wanted.kind = kind;
  wanted.dtype = settings_.dtype;
  wanted.settings = settings_of(kind);
  return wanted;
}

bool Wanted::matches(const state::Evaluation& row) const {
  const std::string& identity = row.kind == "average" ? average_identity_ : identity_;
  return row.settings_sha256 == identity && task_set(row.settings.tasks) == tasks_;
}

Result<std::string> Wanted::why_not(std::int64_t run_id, std::int64_t step,
                                    const std::string& kind) const {
  const auto& kinds = settings_.weights;
  if (kind == "average") {
    if (settings_.average_last == 0) return std::string("evaluate.average_last is 0");
  } else if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    return "evaluate.weights leaves " + kind + " out";
  }
  std::set<std::int64_t> earlier;
  if (settings_.every_nth > 1) {
    // Both: what was deleted since, and what is there but not yet recorded.
    EVALCAR_ASSIGN_OR_RETURN(const auto checkpoints, rows_.checkpoints(run_id));
    for (const state::Checkpoint& c : checkpoints) {
      if (c.step < step) earlier.insert(c.step);
    }
    for (const auto& [there, path] : view_.present) {
      if (there < step) earlier.insert(there);
    }
  }
  return schedule::why_not_wanted({settings_.enabled, settings_.eval_steps, settings_.every_nth},
                                  step, static_cast<std::int64_t>(earlier.size()));
}

}  // namespace evalcar::run
