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

/// Its folder; absent: these weights are not complete, or nowhere any more.
Result<std::optional<std::string>> Pins::pin_kind(const state::Checkpoint& checkpoint,
                                                  const std::string& kind) {
  EVALCAR_ASSIGN_OR_RETURN(const auto judged, rows_.files_of(checkpoint.id, kind));
  if (judged.empty()) return std::optional<std::string>();
  const std::string name = lease_name_of(checkpoint.step, checkpoint.generation, kind);
  const std::string dir = pinned_.dir_of(name);
  if (pinned_.holds(dir) && pinned_.check_against(dir, judged).has_value()) {
    return std::optional(dir);
  }
  // The trainer's files if it still has them, else those of a lease.
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
    if (leases_.is_reference(source) || !leases_.check_against(source, judged).has_value()) {
      return std::optional<std::string>();
    }
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
  const state::Checkpoint* newest = nullptr;
  for (const state::Checkpoint& checkpoint : *all) {
    if (checkpoint.step != asked.step) continue;
    if (newest == nullptr || checkpoint.generation > newest->generation) newest = &checkpoint;
  }
  const std::string of_step = " of step " + std::to_string(asked.step);
  if (newest == nullptr) return {Outcome::kNothing, "there is no checkpoint" + of_step};
  std::vector<std::string> places;
  for (const char* const kind : kKinds) {
    const auto place = pin_kind(*newest, kind);
    if (!place.has_value()) return {Outcome::kFailed, place.error().message};
    if (place->has_value()) places.push_back(**place);
  }
  if (places.empty()) {
    return {Outcome::kNothing, "the weights" + of_step + " are not complete, or gone already"};
  }
  return {Outcome::kDone, "the weights" + of_step + " stay in " + listed(places)};
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
