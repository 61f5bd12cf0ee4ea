#include "agent/run/adoption.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "agent/run/rows.h"
#include "store/checkpoint/layout.h"

namespace evalcar::run {
namespace {

struct LeaseName {
  std::int64_t step = 0;
  std::int64_t generation = 0;
  std::string kind;
};

/// Of rows.h's lease_name_of(); averages have no folder of their own to be known by.
std::optional<LeaseName> parse_lease_name(const std::string& name) {
  LeaseName lease;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data(), end, lease.step);
  if (parsed.ec != std::errc{} || parsed.ptr == end || *parsed.ptr != '-') return std::nullopt;
  const auto generation = std::from_chars(parsed.ptr + 1, end, lease.generation);
  if (generation.ec != std::errc{} || generation.ptr == end || *generation.ptr != '-') {
    return std::nullopt;
  }
  const std::size_t dash = name.rfind('-');
  lease.kind = name.substr(dash + 1);
  const auto kind = checkpoint::weights_kind_from_name(lease.kind);
  if (!kind.has_value() || kind == checkpoint::WeightsKind::kAverage) return std::nullopt;
  return lease;
}

/// What is known of its checkpoint without a look at the weights. A lease that only leads to
/// weights elsewhere (Stage::refer) is of those, and not of the folder of their step.
state::CheckpointObservation place_of(const FileSystem& files, const std::string& dir,
                                      const LeaseName& lease, const AdoptionPlace& place) {
  state::CheckpointObservation seen;
  seen.name = folder_name(place.pattern, lease.step);
  seen.path = join_path(place.output_dir, seen.name);
  seen.step = lease.step;
  const auto elsewhere = files.read_link(dir);
  if (!elsewhere.has_value()) return seen;
  seen.path = *elsewhere;
  if (const auto folder = files.info_followed(dir); folder.has_value()) {
    seen.device = folder->device;
    seen.inode = folder->inode;
  }
  return seen;
}

/// What a sighting of the folder would have told; absent if the lease is not whole.
std::optional<state::CheckpointObservation> observe_lease(const FileSystem& files,
                                                          const std::string& dir,
                                                          const LeaseName& lease,
                                                          const AdoptionPlace& place) {
  checkpoint::LayoutOptions options;
  options.base_model = place.base_model;
  const auto report = checkpoint::inspect_layout(files, dir, options);
  if (!report.has_value()) return std::nullopt;
  for (const checkpoint::KindState& kind : report->kinds) {
    if (checkpoint::weights_kind_name(kind.kind) != lease.kind ||
        kind.completeness != checkpoint::Completeness::kComplete) {
      continue;
    }
    state::KindObservation of_kind;
    of_kind.kind = lease.kind;
    of_kind.complete = true;
    for (const std::string& file : kind.files) {
      const auto info = files.info_followed(join_path(dir, file));
      if (!info.has_value()) return std::nullopt;
      of_kind.files.push_back({file, info->inode, info->size_bytes, info->mtime_ns});
      of_kind.size_bytes += info->size_bytes;
      of_kind.mtime_ns = std::max(of_kind.mtime_ns, info->mtime_ns);
    }
    of_kind.fingerprint = state::content_fingerprint(of_kind.files);
    state::CheckpointObservation seen = place_of(files, dir, lease, place);
    seen.layout = std::string(checkpoint::layout_name(report->layout));
    seen.kinds.push_back(std::move(of_kind));
    return seen;
  }
  return std::nullopt;
}

/// A kill came between its links and its row.
Status take_back(state::Store& store, const stage::Stage& stage, const state::Evaluation& row,
                 const std::string& name) {
  EVALCAR_ASSIGN_OR_RETURN(const auto judged, store.read().files_of(row.checkpoint_id, row.kind));
  const Status whole = stage.check_against(stage.dir_of(name), judged);
  if (judged.empty() || !whole.has_value()) return {};
  spdlog::info("{}: is gone, its lease is whole", title(row));
  return store.mark_leased(row.id, stage.dir_of(name));
}

/// Seen in part, and held when it was whole: it ended before that could be recorded.
Status complete_found(const FileSystem& files, state::Store& store, const stage::Stage& stage,
                      const Wanted& wanted, const state::Evaluation& row, const std::string& name,
                      const LeaseName& lease, const AdoptionPlace& place) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string unwanted, wanted.why_not(row));
  if (!unwanted.empty()) return {};
  const auto seen = observe_lease(files, stage.dir_of(name), lease, place);
  if (!seen.has_value()) return {};
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t generation, store.generation_of(row.run_id, *seen));
  if (generation != row.generation) return {};
  const auto observed = store.observe_checkpoint(row.run_id, *seen);
  if (!observed.has_value()) return observed.error();
  EVALCAR_RETURN_IF_ERROR(store.transition(row.id, state::EvaluationState::kComplete));
  spdlog::info("{}: is gone, its lease is whole", title(row));
  return store.mark_leased(row.id, stage.dir_of(name));
}

std::vector<std::string> sorted(std::vector<std::string> tasks) {
  std::sort(tasks.begin(), tasks.end());
  return tasks;
}

/// The evaluations that are wanted of a lease and have no row. `rows`: those of its checkpoint.
Result<std::vector<state::NewEvaluation>> missing_of(const Wanted& wanted, std::int64_t run_id,
                                                     const LeaseName& lease,
                                                     const std::vector<state::Evaluation>& rows) {
  std::vector<state::NewEvaluation> missing;
  for (state::NewEvaluation& one : wanted.evaluations_of(0, lease.kind)) {
    const bool known = std::any_of(rows.begin(), rows.end(), [&one](const state::Evaluation& row) {
      return sorted(row.settings.tasks) == sorted(one.settings.tasks);
    });
    if (known) continue;
    EVALCAR_ASSIGN_OR_RETURN(const std::string unwanted,
                             wanted.why_not(run_id, lease.step, lease.kind, one.settings.tasks));
    if (unwanted.empty()) missing.push_back(std::move(one));
  }
  return missing;
}

/// The checkpoint whose files the lease holds; absent: they are not whole, or not those of `rows`,
/// or those of a generation that is known. `newest`: of that step.
Result<std::optional<std::int64_t>> checkpoint_of(const FileSystem& files, state::Store& store,
                                                  const stage::Stage& stage, const state::Run& run,
                                                  const std::string& dir, const LeaseName& lease,
                                                  const std::vector<state::Evaluation>& rows,
                                                  const AdoptionPlace& place, std::int64_t newest,
                                                  bool newer) {
  if (!rows.empty()) {
    const std::int64_t id = rows.front().checkpoint_id;
    EVALCAR_ASSIGN_OR_RETURN(const auto judged, store.read().files_of(id, lease.kind));
    if (judged.empty() || !stage.check_against(dir, judged).has_value()) {
      return std::optional<std::int64_t>();
    }
    return std::optional(id);
  }
  auto seen = observe_lease(files, dir, lease, place);
  if (!seen.has_value()) return std::optional<std::int64_t>();
  if (newer) {
    EVALCAR_ASSIGN_OR_RETURN(std::int64_t generation, store.generation_of(run.id, *seen));
    if (generation != lease.generation && seen->inode == 0) {  // what is known was another folder
      EVALCAR_ASSIGN_OR_RETURN(const FileInfo folder, files.info(dir));
      seen->device = folder.device;
      seen->inode = folder.inode;
      EVALCAR_ASSIGN_OR_RETURN(generation, store.generation_of(run.id, *seen));
    }
    // Generations between them may never have been published: nobody knows of those any more.
    const bool is_new = generation > newest && generation <= lease.generation;
    if (generation != lease.generation && !is_new) return std::optional<std::int64_t>();
  }
  EVALCAR_ASSIGN_OR_RETURN(const state::Observed observed,
                           store.observe_checkpoint(run.id, *seen, lease.generation));
  if (!stage.is_reference(dir)) {  // else they are there, and are seen again
    EVALCAR_RETURN_IF_ERROR(store.mark_checkpoint_gone(observed.checkpoint.id));
  }
  return std::optional(observed.checkpoint.id);
}

/// What the database knows of a run, for adopt().
struct KnownRows {
  /// By step and kind: a kind may be known without the other.
  std::map<std::pair<std::int64_t, std::string>, std::int64_t> newest;  ///< generation of a kind
  std::map<std::string, std::vector<state::Evaluation>> of_lease;       ///< by the lease's name

  /// Generation of a step, whichever kind of it is known; 0: none is.
  std::int64_t newest_of(std::int64_t step) const {
    std::int64_t found = 0;
    for (auto kind = newest.lower_bound({step, ""}); kind != newest.end(); ++kind) {
      if (kind->first.first != step) break;
      found = std::max(found, kind->second);
    }
    return found;
  }
};

Result<KnownRows> known_rows(const state::Reader& reader, std::int64_t run_id) {
  KnownRows known;
  EVALCAR_RETURN_IF_ERROR(
      reader.for_each_evaluation({.run_id = run_id}, [&known](const state::Evaluation& row) {
        auto& newest = known.newest[{row.step, row.kind}];
        newest = std::max(newest, row.generation);
        known.of_lease[lease_name_of(row.step, row.generation, row.kind)].push_back(row);
      }));
  return known;
}

/// Whether another kind of the checkpoint waits that was not written again with it: a new
/// generation would end that one. An average goes with its newest member.
Result<bool> breaks_off_another(const stage::Stage& stage, const Wanted& wanted,
                                const LeaseName& lease, const KnownRows& known) {
  for (const auto& [name, rows] : known.of_lease) {
    for (const state::Evaluation& row : rows) {
      if (row.step != lease.step || row.kind == lease.kind || row.kind == "average") continue;
      if (row.generation >= lease.generation || !is_open(row.state)) continue;
      if (row.state == state::EvaluationState::kFound) continue;
      const std::string held = lease_name_of(row.step, lease.generation, row.kind);
      if (stage.holds(stage.dir_of(held))) continue;
      if (row.settings.requested != 0) return true;
      EVALCAR_ASSIGN_OR_RETURN(const std::string unwanted, wanted.why_not(row));
      if (unwanted.empty()) return true;
    }
  }
  return false;
}

/// Files that took the place of known ones: they were held (Leases::hold) and never recorded, or
/// the database that knew them was lost.
Result<bool> is_newer(const stage::Stage& stage, const Wanted& wanted, const std::string& name,
                      const LeaseName& lease, const KnownRows& known) {
  const auto newest = known.newest.find({lease.step, lease.kind});
  if (newest == known.newest.end() || lease.generation <= newest->second) return false;
  EVALCAR_ASSIGN_OR_RETURN(const bool breaks_off, breaks_off_another(stage, wanted, lease, known));
  if (!breaks_off) return true;
  spdlog::warn("{}: is not measured: other weights of its step wait that are of an earlier save",
               stage.dir_of(name));
  return false;
}

/// What waited is gone with the database, and the lease cannot tell enough of it: the rows say so.
/// `newest`: generation of that step; of an older one nothing is missed.
Status lose(const FileSystem& files, state::Store& store, const state::Run& run,
            const std::string& dir, const LeaseName& lease, const AdoptionPlace& place,
            std::int64_t newest, std::vector<state::NewEvaluation> asked) {
  if (lease.generation < newest) return {};
  constexpr const char* kWhy = "the database did not know it, and its lease is not whole";
  state::CheckpointObservation seen = place_of(files, dir, lease, place);
  seen.kinds.push_back({.kind = lease.kind, .reason = kWhy});
  if (lease.generation > newest && seen.inode == 0) {  // another folder than what is known
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo folder, files.info(dir));
    seen.device = folder.device;
    seen.inode = folder.inode;
  }
  EVALCAR_ASSIGN_OR_RETURN(const state::Observed observed,
                           store.observe_checkpoint(run.id, seen, lease.generation));
  EVALCAR_RETURN_IF_ERROR(store.mark_checkpoint_gone(observed.checkpoint.id));
  for (state::NewEvaluation& one : asked) {
    one.checkpoint_id = observed.checkpoint.id;
    EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store.plan_evaluation(one));
    EVALCAR_RETURN_IF_ERROR(end_evaluation(store, row.id, state::EvaluationState::kLost, kWhy));
  }
  return {};
}

Status adopt(const FileSystem& files, state::Store& store, const stage::Stage& stage,
             const Wanted& wanted, const state::Run& run, const AdoptionPlace& place,
             const std::string& name, const LeaseName& lease, KnownRows& known) {
  const std::vector<state::Evaluation>& of_lease = known.of_lease[name];
  for (const state::Evaluation& row : of_lease) {
    if (!row.lease_path.empty()) continue;
    if (row.state == state::EvaluationState::kComplete)
      EVALCAR_RETURN_IF_ERROR(take_back(store, stage, row, name));
    if (row.state == state::EvaluationState::kFound) {
      EVALCAR_RETURN_IF_ERROR(complete_found(files, store, stage, wanted, row, name, lease, place));
    }
  }
  // Beside a row of this configuration only those of other tasks can be missing: their numbers
  // were not published yet when the database was lost. Rows of another one hand their leases on.
  const bool beside = std::any_of(of_lease.begin(), of_lease.end(),
                                  [&](const auto& row) { return wanted.matches(row); });
  EVALCAR_ASSIGN_OR_RETURN(const bool newer, is_newer(stage, wanted, name, lease, known));
  if (known.newest.contains({lease.step, lease.kind}) && !beside && !newer) return {};
  EVALCAR_ASSIGN_OR_RETURN(auto asked, missing_of(wanted, run.id, lease, of_lease));
  if (asked.empty()) return {};
  const std::string dir = stage.dir_of(name);
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoint,
                           checkpoint_of(files, store, stage, run, dir, lease, of_lease, place,
                                         known.newest_of(lease.step), newer));
  if (!stage.answers()) return make_error(ErrorCode::kUnavailable, dir + ": does not answer");
  if (!checkpoint.has_value()) {
    // Of a step that nobody knows it may be what a killed process had half made.
    const std::int64_t newest = known.newest_of(lease.step);
    if (!of_lease.empty() || newest == 0) return {};
    EVALCAR_RETURN_IF_ERROR(lose(files, store, run, dir, lease, place, newest, std::move(asked)));
  }
  auto& generation = known.newest[{lease.step, lease.kind}];
  generation = std::max(generation, lease.generation);
  if (!checkpoint.has_value()) return {};
  for (state::NewEvaluation& one : asked) {
    one.checkpoint_id = *checkpoint;
    EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store.plan_evaluation(one));
    EVALCAR_RETURN_IF_ERROR(store.transition(row.id, state::EvaluationState::kComplete));
    EVALCAR_RETURN_IF_ERROR(store.mark_leased(row.id, dir));
    spdlog::warn("{}: is gone, and the database did not know it; its lease is measured",
                 title(row));
  }
  return {};
}

}  // namespace

Status adopt_leases(const FileSystem& files, state::Store& store, const stage::Stage& stage,
                    const Wanted& wanted, const state::Run& run, const AdoptionPlace& place,
                    std::set<std::string>& judged, Slice& slice) {
  EVALCAR_ASSIGN_OR_RETURN(KnownRows known, known_rows(store.read(), run.id));
  for (const std::string& name : stage.names()) {
    const auto lease = parse_lease_name(name);
    if (!lease.has_value() || judged.contains(name)) continue;
    if (slice.was_cut()) return {};
    const std::string folder = join_path(place.output_dir, folder_name(place.pattern, lease->step));
    // One whose folder is there is recorded as any other.
    if (!files.info_followed(folder).has_value()) {
      EVALCAR_RETURN_IF_ERROR(adopt(files, store, stage, wanted, run, place, name, *lease, known));
    }
    judged.insert(name);
    (void)slice.over();
  }
  return {};
}

}  // namespace evalcar::run
