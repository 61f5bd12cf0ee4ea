#include "agent/run/wanted.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "agent/run/evaluation_settings.h"
#include "agent/run/rows.h"

namespace evalcar::run {
namespace {

std::vector<std::string> task_set(std::vector<std::string> tasks) {
  std::sort(tasks.begin(), tasks.end());
  tasks.erase(std::unique(tasks.begin(), tasks.end()), tasks.end());
  return tasks;
}

config::TaskCadence cadence_of(const config::EvaluateSettings& settings, const std::string& task) {
  config::TaskCadence cadence;
  const auto steps = settings.task_eval_steps.find(task);
  if (steps != settings.task_eval_steps.end()) cadence.eval_steps = steps->second;
  const auto nth = settings.task_every_nth.find(task);
  if (nth != settings.task_every_nth.end()) cadence.every_nth = nth->second;
  return cadence;
}

}  // namespace

Wanted::Wanted(const FileSystem& files, const config::EvaluateSettings& settings,
               const state::Reader& rows, const DiskView& view)
    : files_(files),
      settings_(settings),
      rows_(rows),
      view_(view),
      wanted_(evaluation_settings(settings)),
      identity_(state::settings_sha256(wanted_, settings.dtype)),
      average_identity_(state::settings_sha256(settings_of("average"), settings.dtype)) {
  std::map<config::TaskCadence, Group> groups;
  for (const std::string& task : wanted_.tasks) {
    const config::TaskCadence cadence = cadence_of(settings, task);
    Group& group = groups[cadence];
    group.cadence = cadence;
    group.tasks.push_back(task);
  }
  for (auto& [cadence, group] : groups) groups_.push_back(std::move(group));
  // Without tasks (`evalcar serve`) nothing is wanted but what jobs ask for.
}

const Wanted::Group* Wanted::group_of(const std::vector<std::string>& tasks) const {
  const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
    return task_set(group.tasks) == task_set(tasks);
  });
  return found == groups_.end() ? nullptr : &*found;
}

protocol::EvaluationSettings Wanted::settings_of(const std::string& kind) const {
  protocol::EvaluationSettings settings = wanted_;
  if (kind == "average") settings.average_last = settings_.average_last;
  return settings;
}

std::vector<state::NewEvaluation> Wanted::evaluations_of(std::int64_t checkpoint_id,
                                                         const std::string& kind) const {
  std::vector<state::NewEvaluation> all;
  for (const Group& group : groups_) {
    state::NewEvaluation& wanted = all.emplace_back();
    wanted.checkpoint_id = checkpoint_id;
    wanted.kind = kind;
    wanted.dtype = settings_.dtype;
    wanted.settings = settings_of(kind);
    wanted.settings.tasks = group.tasks;
  }
  return all;
}

bool Wanted::matches(const state::Standing& row) const {
  const std::string& identity = row.kind == "average" ? average_identity_ : identity_;
  return row.settings_sha256 == identity && group_of(row.settings.tasks) != nullptr;
}

std::optional<state::ConfiguredSettings> Wanted::configured() const {
  if (groups_.empty()) return std::nullopt;
  return state::ConfiguredSettings{identity_, average_identity_};
}

Result<std::string> Wanted::why_not(std::int64_t run_id, std::int64_t step, const std::string& kind,
                                    const std::vector<std::string>& tasks) const {
  const auto& kinds = settings_.weights;
  if (kind == "average") {
    if (settings_.average_last == 0) return std::string("evaluate.average_last is 0");
  } else if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    return "evaluate.weights leaves " + kind + " out";
  }
  if (!leaves_out()) return std::string();
  EVALCAR_ASSIGN_OR_RETURN(const schedule::Occasion occasion, occasion_of(run_id, step));
  warn_of_mismatch(occasion);
  const std::string reason = schedule::why_not_wanted(cadence(), occasion);
  const Group* const group = group_of(tasks);
  if (!reason.empty() || group == nullptr) return reason;
  std::string names;
  for (const std::string& task : group->tasks) names += (names.empty() ? "" : ", ") + task;
  return schedule::why_tasks_not_wanted(group->cadence, names, occasion);
}

/// Else nothing has to be known of a checkpoint.
bool Wanted::leaves_out() const {
  return settings_.eval_strategy != config::EvalStrategy::kSteps || settings_.eval_steps > 0 ||
         settings_.every_nth > 1 || !settings_.task_every_nth.empty() ||
         !settings_.task_eval_steps.empty();
}

void Wanted::forget() {
  last_step_.reset();
  trainer_states_.clear();
}

const TrainerState* Wanted::trainer_state(std::int64_t step) const {
  const auto known = trainer_states_.find(step);
  const TrainerState* const before =
      known == trainer_states_.end() || !known->second.state ? nullptr : &*known->second.state;
  const auto there = view_.present.find(step);
  if (there == view_.present.end()) return before;
  const auto now = files_.info_followed(join_path(there->second, "trainer_state.json"));
  if (!now.has_value()) return before;
  if (known != trainer_states_.end() && known->second.file.same_content_identity(*now)) {
    return before;
  }
  const auto read = read_trainer_state(files_, there->second);
  if (read.has_value()) return &*(trainer_states_[step] = {*now, *read}).state;
  if (read.error().code != ErrorCode::kCorruption) return nullptr;
  trainer_states_[step] = {*now, std::nullopt};
  if (!std::exchange(unreadable_told_, true)) {
    spdlog::warn(
        "{}; it is not read: by epochs every checkpoint is evaluated, and the last step is not "
        "known (watch.exit_at_max_steps)",
        read.error().message);
  }
  return nullptr;
}

std::optional<std::int64_t> Wanted::end_marked_at(std::int64_t step) const {
  const TrainerState* const state = trainer_state(step);
  if (state == nullptr || !state->is_last()) return std::nullopt;
  return trainer_states_.at(step).file.mtime_ns;
}

schedule::Cadence Wanted::cadence() const {
  return {settings_.eval_strategy, settings_.eval_steps, settings_.every_nth};
}

schedule::Occasion Wanted::bare_occasion_of(std::int64_t step) const {
  schedule::Occasion occasion;
  occasion.step = step;
  if (const TrainerState* const state = trainer_state(step); state != nullptr) {
    occasion.is_last = state->is_last();
    occasion.epoch = state->epoch;
    occasion.save_steps = state->save_steps;
  }
  return occasion;
}

Result<schedule::Occasion> Wanted::occasion_of(std::int64_t run_id, std::int64_t step) const {
  schedule::Occasion occasion = bare_occasion_of(step);
  occasion.is_last |= last_step_ == step;
  if (!counts()) return occasion;
  // All: what was deleted since, and what is there or was, and is not recorded yet.
  std::set<std::int64_t> earlier;
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoints, rows_.checkpoints(run_id));
  for (const state::Checkpoint& c : checkpoints) {
    if (c.step < step && !is_snapshot(c)) earlier.insert(c.step);
  }
  for (const auto& [there, path] : view_.present) {
    if (there < step) earlier.insert(there);
  }
  earlier.insert(view_.untold.begin(), view_.untold.lower_bound(step));
  occasion.position = static_cast<std::int64_t>(earlier.size());
  if (settings_.task_every_nth.empty()) return occasion;
  std::int64_t position = 0;
  for (const std::int64_t before : earlier) {
    schedule::Occasion one = bare_occasion_of(before);
    one.position = position++;
    EVALCAR_ASSIGN_OR_RETURN(const bool counts, let_through(run_id, one));
    occasion.position_of_wanted += counts ? 1 : 0;
  }
  return occasion;
}

/// By the cadence of all. That training ended once with it is not asked: it may not be known any
/// more, and each start has to count alike. Of epochs, what was found while it was there stands.
Result<bool> Wanted::let_through(std::int64_t run_id, const schedule::Occasion& earlier) const {
  schedule::Occasion one = earlier;
  one.is_last = false;
  if (!schedule::why_not_wanted(cadence(), one).empty()) return false;
  if (settings_.eval_strategy != config::EvalStrategy::kEpoch || one.epoch.has_value()) return true;
  EVALCAR_ASSIGN_OR_RETURN(const auto rows,
                           rows_.evaluations({.run_id = run_id, .step = one.step}));
  return std::none_of(rows.begin(), rows.end(), [](const state::Evaluation& row) {
    return row.state == state::EvaluationState::kSkipped &&
           row.reason.starts_with(std::string(kNotWanted) + "evaluate.eval_strategy");
  });
}

/// Once: where the trainer saves at other steps, fewer are evaluated than the setting says.
void Wanted::warn_of_mismatch(const schedule::Occasion& occasion) const {
  if (mismatch_known_) return;
  std::int64_t save_steps = occasion.save_steps;
  std::string source = "trainer_state.json";
  const auto there = view_.present.find(occasion.step);
  if (save_steps == 0 && there != view_.present.end()) {
    save_steps = save_steps_of_lmms_engine(files_, parent_path(there->second));
    source = "config.yaml";
  }
  if (settings_.eval_strategy == config::EvalStrategy::kEpoch) {
    const bool complete =
        there != view_.present.end() &&
        view_.complete.contains({occasion.step, checkpoint::WeightsKind::kRegular});
    if (!complete) return;
    mismatch_known_ = true;
    if (!occasion.epoch.has_value()) {
      spdlog::warn(
          "evaluate.eval_strategy is \"epoch\", but no trainer_state.json tells of epochs: every "
          "checkpoint is evaluated");
    }
    return;
  }
  if (settings_.eval_strategy != config::EvalStrategy::kSteps || settings_.eval_steps == 0) return;
  if (save_steps == 0) return;
  mismatch_known_ = true;
  if (settings_.eval_steps % save_steps == 0) return;
  spdlog::warn(
      "evaluate.eval_steps = {}, but the trainer saves every {} steps ({}): only the steps that {} "
      "divides are evaluated, and the last one",
      settings_.eval_steps, save_steps, source, std::lcm(settings_.eval_steps, save_steps));
}

}  // namespace evalcar::run
