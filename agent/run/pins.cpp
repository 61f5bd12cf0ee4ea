#include "agent/run/pins.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <utility>
#include <vector>

#include "agent/run/rows.h"

namespace evalcar::run {
namespace {

using request::Answer;
using request::Outcome;

constexpr std::array<const char*, 2> kKinds = {"regular", "ema"};

/// Of "500-1-regular"; -1 if it begins with no number.
std::int64_t step_of(const std::string& name) {
  std::int64_t step = -1;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), step);
  return parsed.ec == std::errc{} ? step : -1;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

/// `saves`: of one step, the newest first. Absent: these weights are complete in none of them, or
/// nowhere any more.
Result<std::optional<Pins::Pinned>> Pins::pin_newest(const std::vector<state::Checkpoint>& saves,
                                                     const std::string& kind) {
  bool is_older = false;
  for (const state::Checkpoint& save : saves) {
    EVALCAR_ASSIGN_OR_RETURN(const auto judged, rows_.files_of(save.id, kind));
    if (!judged.empty()) {
      EVALCAR_ASSIGN_OR_RETURN(auto dir, pin_kind(save, kind, judged));
      if (dir.has_value()) return std::optional(Pinned{std::move(*dir), is_older});
    }
    EVALCAR_ASSIGN_OR_RETURN(const std::string why, rows_.incomplete_reason(save.id, kind));
    is_older = is_older || !judged.empty() || !why.empty();
  }
  return std::optional<Pinned>();
}

/// Its folder; absent: these weights are nowhere any more. `judged`: their files.
Result<std::optional<std::string>> Pins::pin_kind(const state::Checkpoint& checkpoint,
                                                  const std::string& kind,
                                                  const std::vector<state::FileIdentity>& judged) {
  const std::string name = lease_name_of(checkpoint.step, checkpoint.generation, kind);
  const std::string dir = pinned_.dir_of(name);
  if (pinned_.holds(dir) && pinned_.check_against(dir, judged).has_value()) {
    return std::optional(dir);
  }
  // The trainer's files if it still has them, else those of a lease. One of weights that lie
  // elsewhere (snapshots.h) leads there: those go when they are measured.
  std::string source = leases_.dir_of(name);
  std::vector<watch::WatchedFile> wanted;
  const auto seen = view_.complete.find(
      {checkpoint.step,
       checkpoint::weights_kind_from_name(kind).value_or(checkpoint::WeightsKind::kRegular)});
  if (seen != view_.complete.end() &&
      seen->second.fingerprint == state::content_fingerprint(judged)) {
    source = seen->second.path;
    wanted = seen->second.files;
  } else {
    if (!leases_.check_against(source, judged).has_value()) return std::optional<std::string>();
    for (const state::FileIdentity& file : judged) {
      EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, files_.info(join_path(source, file.path)));
      wanted.push_back({file.path, info});
    }
  }
  EVALCAR_ASSIGN_OR_RETURN(const stage::Lease lease,
                           pinned_.keep(name, source, wanted, space_.copy_budget()));
  return std::optional(lease.dir);
}

Answer Pins::unpin(std::int64_t step) {
  steps_.reset();
  std::vector<std::string> gone;
  for (const std::string& name : pinned_.names()) {
    if (step_of(name) != step) continue;
    const Status released = pinned_.release(pinned_.dir_of(name));
    if (!released.has_value()) return {Outcome::kFailed, released.error().message};
    gone.push_back(name);
  }
  if (gone.empty()) return {Outcome::kNothing, "step " + std::to_string(step) + " is not pinned"};
  return {Outcome::kDone, "step " + std::to_string(step) + " is no longer pinned"};
}

Answer Pins::set(std::int64_t run_id, const request::Pin& asked) {
  if (asked.off) return unpin(asked.step);
  steps_.reset();
  const auto all = rows_.checkpoints(run_id);
  if (!all.has_value()) return {Outcome::kFailed, all.error().message};
  std::vector<state::Checkpoint> saves;
  for (const state::Checkpoint& checkpoint : *all) {
    if (checkpoint.step == asked.step) saves.push_back(checkpoint);
  }
  std::ranges::sort(saves, std::ranges::greater{}, &state::Checkpoint::generation);
  const std::string of_step = " of step " + std::to_string(asked.step);
  if (saves.empty()) return {Outcome::kNothing, "there is no checkpoint" + of_step};
  std::vector<std::string> places;
  std::vector<std::string> older;
  for (const char* const kind : kKinds) {
    const auto pinned = pin_newest(saves, kind);
    if (!pinned.has_value()) return {Outcome::kFailed, pinned.error().message};
    if (!pinned->has_value()) continue;
    places.push_back((*pinned)->dir);
    if ((*pinned)->is_older) older.push_back(kind);
  }
  if (places.empty()) {
    return {Outcome::kNothing, "the weights" + of_step + " are not complete, or gone already"};
  }
  std::string text = "the weights" + of_step + " stay in " + listed(places);
  if (!older.empty()) {
    text += "; the " + listed(older) +
            " ones are those of an older save of it: of the newest they are not complete, or gone";
  }
  return {Outcome::kDone, text};
}

std::vector<std::int64_t> Pins::steps() {
  if (steps_.has_value()) return *steps_;
  std::set<std::int64_t> steps;
  for (const std::string& name : pinned_.names()) {
    if (const std::int64_t step = step_of(name); step >= 0) steps.insert(step);
  }
  std::vector<std::int64_t> listed(steps.begin(), steps.end());
  if (pinned_.answers()) steps_ = listed;
  return listed;
}

/// A pin whose files a lease holds too frees nothing alone, but without it the lease goes when its
/// turn comes.
Result<bool> Pins::give_up_oldest() {
  stage::Held held = pinned_.held();
  leases_.add_held(held, "lease ");
  if (held.bytes() == 0) return false;
  std::vector<std::string> names = pinned_.names();
  std::erase_if(names, [&held](const std::string& name) { return held.bytes_of(name) == 0; });
  const auto oldest = std::ranges::min_element(names, {}, step_of);
  if (oldest == names.end()) return false;
  steps_.reset();
  EVALCAR_RETURN_IF_ERROR(pinned_.release(pinned_.dir_of(*oldest)));
  spdlog::error("{}: pinned by hand, and given up all the same: disk space is short", *oldest);
  return true;
}

}  // namespace evalcar::run
