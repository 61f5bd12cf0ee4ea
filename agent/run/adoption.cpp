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
  std::string kind;
};

/// Of rows.h's lease_name_of(); averages have no folder of their own to be known by.
std::optional<LeaseName> parse_lease_name(const std::string& name) {
  LeaseName lease;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data(), end, lease.step);
  if (parsed.ec != std::errc{} || parsed.ptr == end || *parsed.ptr != '-') return std::nullopt;
  const std::size_t dash = name.rfind('-');
  lease.kind = name.substr(dash + 1);
  const auto kind = checkpoint::weights_kind_from_name(lease.kind);
  if (!kind.has_value() || kind == checkpoint::WeightsKind::kAverage) return std::nullopt;
  return lease;
}

std::string folder_name(const std::string& pattern, std::int64_t step) {
  constexpr std::string_view kStep = "{step}";
  std::string name = pattern;
  const std::size_t at = name.find(kStep);
  return at == std::string::npos ? name : name.replace(at, kStep.size(), std::to_string(step));
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
    state::CheckpointObservation seen;
    seen.name = folder_name(place.pattern, lease.step);
    seen.path = join_path(place.output_dir, seen.name);
    seen.step = lease.step;
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

}  // namespace

Status adopt_leases(const FileSystem& files, state::Store& store, const stage::Stage& stage,
                    const Wanted& wanted, const state::Run& run, const AdoptionPlace& place) {
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store.read().evaluations({.run_id = run.id}));
  std::set<std::pair<std::int64_t, std::string>> known;  // a kind may be known without the other
  std::multimap<std::string, state::Evaluation> without_lease;
  for (const state::Evaluation& row : rows) {
    known.emplace(row.step, row.kind);
    if (row.state == state::EvaluationState::kComplete && row.lease_path.empty()) {
      without_lease.emplace(lease_name_of(row.step, row.generation, row.kind), row);
    }
  }
  for (const std::string& name : stage.names()) {
    const auto lease = parse_lease_name(name);
    if (!lease.has_value()) continue;
    const std::string folder = join_path(place.output_dir, folder_name(place.pattern, lease->step));
    if (files.info_followed(folder).has_value()) continue;  // it is recorded as any other
    const auto [first, last] = without_lease.equal_range(name);
    for (auto row = first; row != last; ++row) {
      EVALCAR_RETURN_IF_ERROR(take_back(store, stage, row->second, name));
    }
    if (known.contains({lease->step, lease->kind})) continue;
    std::vector<state::NewEvaluation> asked = wanted.evaluations_of(0, lease->kind);
    for (auto one = asked.begin(); one != asked.end();) {
      EVALCAR_ASSIGN_OR_RETURN(
          const std::string unwanted,
          wanted.why_not(run.id, lease->step, lease->kind, one->settings.tasks));
      one = unwanted.empty() ? std::next(one) : asked.erase(one);
    }
    if (asked.empty()) continue;
    const auto seen = observe_lease(files, stage.dir_of(name), *lease, place);
    if (!seen.has_value()) continue;
    EVALCAR_ASSIGN_OR_RETURN(const state::Observed observed,
                             store.observe_checkpoint(run.id, *seen));
    EVALCAR_RETURN_IF_ERROR(store.mark_checkpoint_gone(observed.checkpoint.id));
    for (state::NewEvaluation& one : asked) {
      one.checkpoint_id = observed.checkpoint.id;
      EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store.plan_evaluation(one));
      EVALCAR_RETURN_IF_ERROR(store.transition(row.id, state::EvaluationState::kComplete));
      EVALCAR_RETURN_IF_ERROR(store.mark_leased(row.id, stage.dir_of(name)));
    }
    spdlog::warn("{} {}: is gone, and the database did not know it; its lease is measured",
                 seen->name, lease->kind);
  }
  return {};
}

}  // namespace evalcar::run
