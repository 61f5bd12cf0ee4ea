#include "agent/run/best_kept.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "agent/publish/best.h"
#include "agent/run/rows.h"
#include "agent/run/warn_once.h"

namespace evalcar::run {
namespace {

/// An average is of several checkpoints: evalcar merge makes it again from those.
constexpr std::array<const char*, 2> kKinds = {"regular", "ema"};
constexpr std::size_t kMostPassedOver = 100;

bool is_kept_kind(const std::string& kind) {
  return std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

std::string lease_name(const state::Evaluation& row) {
  return lease_name_of(row.step, row.generation, row.kind);
}

}  // namespace

BestKept::BestKept(const Surroundings& around, const config::PublishSettings& settings,
                   state::Store& store, stage::Stage& stage, const DiskSpace& space,
                   const Averages& averages, const DiskView& view, KeptForBest& kept)
    : settings_(settings),
      store_(store),
      stage_(stage),
      space_(space),
      averages_(averages),
      view_(view),
      kept_(kept) {
  options_.metric_for_best_model = settings.metric_for_best_model;
  options_.greater_is_better = settings.greater_is_better;
  options_.aliases = around.aliases;
  kept_.known = settings.keep_best == 0;
}

void BestKept::forget() {
  places_.clear();
  told_.clear();
  refused_.clear();
  kept_.names.clear();
  kept_.known = settings_.keep_best == 0;
  let_go_.clear();
  read_ = false;
  due_ = trim_due_ = trim_all_ = true;
}

/// What earlier processes kept, maybe under another configuration.
Status BestKept::read_kept(std::int64_t run_id) {
  if (read_) return {};
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoints, store_.read().checkpoints(run_id));
  for (const state::Checkpoint& checkpoint : checkpoints) {
    for (const char* const kind : kKinds) {
      EVALCAR_ASSIGN_OR_RETURN(std::string path, store_.read().kept_path(checkpoint.id, kind));
      if (!path.empty()) told_[{checkpoint.id, kind}] = std::move(path);
    }
  }
  read_ = true;
  return {};
}

/// The rows whose leases hold the weights that this one was measured of: itself, and those that
/// were superseded because the same weights were saved again at this step. The newest content
/// first.
Result<std::vector<state::Evaluation>> BestKept::bearers(const state::Evaluation& row) const {
  state::EvaluationFilter filter;
  filter.run_id = row.run_id;
  filter.step = row.step;
  filter.kind = row.kind;
  EVALCAR_ASSIGN_OR_RETURN(auto rows, store_.read().evaluations(filter));
  std::erase_if(rows, [&row](const state::Evaluation& other) {
    return other.id != row.id && (other.weights_sha256 != row.weights_sha256 ||
                                  other.state != state::EvaluationState::kSuperseded);
  });
  std::reverse(rows.begin(), rows.end());
  return rows;
}

/// A link costs nothing while the trainer has the files; a clone counts from the beginning.
bool BestKept::fits(const stage::Lease& lease) const {
  return lease.method != stage::Method::kCloned || stage_.held().bytes() <= space_.lease_budget();
}

/// The folder of a lease with these weights, taken now if need be; "" if there are none any more.
Result<std::string> BestKept::place_of(const state::Evaluation& row) {
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, bearers(row));
  const auto kind = checkpoint::weights_kind_from_name(row.kind);
  const auto seen = view_.complete.find({row.step, *kind});
  for (const state::Evaluation& bearer : rows) {
    EVALCAR_ASSIGN_OR_RETURN(const auto files,
                             store_.read().files_of(bearer.checkpoint_id, bearer.kind));
    if (files.empty()) continue;
    const std::string dir = stage_.dir_of(lease_name(bearer));
    if (stage_.is_reference(dir)) continue;  // what it refers to goes
    if (stage_.holds(dir) && stage_.check_against(dir, files).has_value()) return dir;
    const bool there = seen != view_.complete.end() &&
                       seen->second.fingerprint == state::content_fingerprint(files);
    if (!there || refused_.contains(lease_name(bearer))) continue;
    const auto lease = stage_.keep(lease_name(bearer), seen->second.path, seen->second.files,
                                   space_.spare_copy_budget(stage_));
    let_go_.insert(lease_name(bearer));  // should the ranking fail
    if (lease.has_value() && fits(*lease)) return dir;
    if (lease.has_value()) EVALCAR_RETURN_IF_ERROR(stage_.release(dir));
    if (!lease.has_value()) {
      spdlog::warn("{}: not kept as one of the best: {}", title(bearer), lease.error().message);
    }
    refused_.insert(lease_name(bearer));
  }
  return std::string();
}

Status BestKept::rank(std::int64_t run_id) {
  if (!due_) return {};
  EVALCAR_RETURN_IF_ERROR(read_kept(run_id));
  std::vector<Place> places;
  bool any = false;
  for (const char* const kind : kKinds) {
    if (settings_.keep_best == 0) break;
    // Weights that are gone (of a snapshot, at once) must not push out those that are there.
    const auto wanted = static_cast<std::size_t>(settings_.keep_best);
    EVALCAR_ASSIGN_OR_RETURN(
        const auto best,
        publish::best_evaluations(store_.read(), options_, run_id, kind, wanted + kMostPassedOver));
    any |= !best.empty();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < best.size() && kept < wanted; ++i) {
      EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store_.read().evaluation(best[i]));
      EVALCAR_ASSIGN_OR_RETURN(std::string dir, place_of(row));
      if (dir.empty()) continue;
      ++kept;
      places.push_back({i, {row.checkpoint_id, kind}, title(row), std::move(dir)});
    }
  }
  if (!stage_.answers()) return {};  // what was not found may be there: ranked again
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return a.rank < b.rank; });
  if (settings_.keep_best > 0 && !any) {
    EVALCAR_ASSIGN_OR_RETURN(
        const auto published,
        store_.read().evaluations(
            {.run_id = run_id, .states = {state::EvaluationState::kPublished}}));
    warn_once(complaint_, published.empty()
                              ? ""
                              : "publish.keep_best keeps nothing: no result has a number for " +
                                    settings_.metric_for_best_model +
                                    " (publish.metric_for_best_model)");
  }
  // Which leases stay is known before any path is taken back, and no path names a lease that goes.
  let_go_.merge(std::exchange(kept_.names, {}));
  std::map<Key, std::string> now;
  for (const Place& place : places) {
    kept_.names.insert(base_name(place.dir));
    now[place.key] = place.dir;
  }
  kept_.known = true;
  places_ = std::move(places);
  for (auto told = told_.begin(); told != told_.end();) {
    const auto still = now.find(told->first);
    if (still != now.end() && still->second == told->second) {
      ++told;
      continue;
    }
    EVALCAR_RETURN_IF_ERROR(store_.set_kept_path(told->first.first, told->first.second, ""));
    changed_ = true;
    told = told_.erase(told);
  }
  for (const Place& place : places_) {
    if (told_.contains(place.key)) continue;
    EVALCAR_RETURN_IF_ERROR(store_.set_kept_path(place.key.first, place.key.second, place.dir));
    spdlog::info("{}: kept as one of the best: {}", place.title, place.dir);
    told_[place.key] = place.dir;
    changed_ = true;
  }
  due_ = false;
  trim_due_ = true;
  return {};
}

Status BestKept::step(std::int64_t run_id, Slice& slice) {
  EVALCAR_RETURN_IF_ERROR(rank(run_id));
  return trim(slice);
}

/// Leases that were held back until they were ranked, and those of what was overtaken. All are only
/// looked at once: beside a backlog of thousands that was a quarter of the agent's work.
Status BestKept::trim(Slice& slice) {
  // Until the averages have looked, any lease may be one of their members.
  if (!trim_due_ || due_ || averages_.due()) return {};
  if (trim_all_) {
    for (std::string& name : stage_.names()) {
      if (is_kept_kind(kind_of_lease(name))) let_go_.insert(std::move(name));
    }
    trim_all_ = !stage_.answers();  // else some may be there that were not told
  }
  while (!let_go_.empty()) {
    const std::string& name = *let_go_.begin();
    if (!kept_.names.contains(name) && !averages_.keeps_name(name)) {
      EVALCAR_ASSIGN_OR_RETURN(const bool needed, needs_lease(store_.read(), stage_, name));
      if (!needed) {
        if (const Status released = stage_.release(stage_.dir_of(name)); !released.has_value()) {
          spdlog::warn("{}", released.error().message);  // a leftover: removed later
        }
      }
    }
    let_go_.erase(let_go_.begin());
    if (slice.over()) return {};
  }
  trim_due_ = false;
  return {};
}

bool BestKept::hold_back(const state::Evaluation& row) {
  if (!is_kept_kind(row.kind)) return false;
  let_go_.insert(lease_name(row));  // also where it goes at once: should that fail
  return settings_.keep_best > 0 && (due_ || kept_.names.contains(lease_name(row)));
}

bool BestKept::holds(const state::Evaluation& row) const {
  return is_kept_kind(row.kind) && kept_.may_hold(lease_name(row));
}

Result<std::vector<std::string>> BestKept::names_of(std::int64_t run_id) const {
  std::vector<std::string> names;
  if (settings_.keep_best == 0) return names;
  for (const char* const kind : kKinds) {
    EVALCAR_ASSIGN_OR_RETURN(
        const auto best,
        publish::best_evaluations(store_.read(), options_, run_id, kind,
                                  static_cast<std::size_t>(settings_.keep_best) + kMostPassedOver));
    for (const std::int64_t id : best) {
      EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store_.read().evaluation(id));
      EVALCAR_ASSIGN_OR_RETURN(const auto rows, bearers(row));
      for (const state::Evaluation& bearer : rows) names.push_back(lease_name(bearer));
    }
  }
  return names;
}

std::vector<std::string> BestKept::worst_first() const {
  std::vector<std::string> names;
  for (auto place = places_.rbegin(); place != places_.rend(); ++place) {
    names.push_back(base_name(place->dir));
  }
  return names;
}

Status BestKept::give_up(const std::string& name, bool room_is_short) {
  const auto place = std::find_if(places_.begin(), places_.end(), [&name](const Place& each) {
    return base_name(each.dir) == name;
  });
  if (place == places_.end()) return {};
  const Status forgotten = store_.set_kept_path(place->key.first, place->key.second, "");
  if (!forgotten.has_value() && !room_is_short) return forgotten.error();
  spdlog::warn("{}: one of the best, no longer kept: disk space is short", place->title);
  kept_.names.erase(name);
  // A copy, of what the trainer still has, would be taken and given up by turns.
  refused_.insert(name);
  // Else the path is taken back when the store takes it.
  if (forgotten.has_value()) told_.erase(place->key);
  places_.erase(place);
  due_ = trim_due_ = true;  // the next best may be there, and cost nothing yet
  changed_ = true;
  return {};
}

}  // namespace evalcar::run
