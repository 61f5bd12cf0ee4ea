// Leases that could not be taken for a reason of the moment (a full disk, a quota, a limit) are
// taken once it has passed. Until then what waits is read where the trainer wrote it, and
// retention may take it.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/run/leases.h"
#include "agent/run/rows.h"

namespace evalcar::run {
namespace {

constexpr std::chrono::seconds kLatePause{5};

}  // namespace

std::optional<MonotonicTime> Leases::late_due() const {
  if (exposed_.empty()) return std::nullopt;
  return late_at_;
}

/// What an earlier process could not lease, for whatever reason.
Status Leases::find_exposed(std::int64_t run_id) {
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, rows_with_lease(store_.read(), {.run_id = run_id}));
  for (const state::Evaluation& row : rows) {
    if (is_open(row.state) && stage_.own(row.lease_path).empty()) exposed_.insert(row.id);
  }
  exposed_of_ = run_id;
  return {};
}

/// From behind the one that failed last, so that it keeps no other from its turn.
Status Leases::take_late(std::int64_t run_id, std::optional<std::int64_t> active, Slice& slice) {
  if (exposed_of_ != run_id) EVALCAR_RETURN_IF_ERROR(find_exposed(run_id));
  const MonotonicTime now = clock_.monotonic_now();
  if (exposed_.empty() || now < late_at_) return {};
  std::vector<std::int64_t> all(exposed_.begin(), exposed_.end());
  std::ranges::rotate(all, std::ranges::upper_bound(all, refused_late_));
  for (const std::int64_t id : all) {
    if (slice.was_cut()) return {};
    EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store_.read().evaluation(id));
    const Status taken = id == active ? Status() : take_late(row);
    if (!taken.has_value() && taken.error().retryable) {
      spdlog::debug("{}: still read in place: {}", title(row), taken.error().message);
      refused_late_ = id;
      break;  // what stands in the way of one does in that of the others
    }
    if (!taken.has_value()) exposed_.erase(id);
    (void)slice.over();
  }
  late_at_ = now + kLatePause;
  return {};
}

/// By links alone: nobody waits for a copy of what is there. An error that no later try can help:
/// it stays in place.
Status Leases::take_late(const state::Evaluation& row) {
  constexpr std::uint64_t kNoCopies = 0;
  const auto kind = checkpoint::weights_kind_from_name(row.kind);
  if (!is_open(row.state) || row.lease_path.empty() || !stage_.own(row.lease_path).empty() ||
      !kind.has_value()) {
    exposed_.erase(row.id);
    return {};
  }
  const bool waits =
      row.state == state::EvaluationState::kLeased || row.state == state::EvaluationState::kFailed;
  const watch::Sighting* const seen = view_.whole_in(row.checkpoint_path, {row.step, *kind});
  if (!waits || seen == nullptr) return {};
  EVALCAR_ASSIGN_OR_RETURN(auto shared, lease_of_another(row));
  const std::string name = lease_name_of(row.step, row.generation, row.kind);
  auto lease = shared.has_value() ? Result<stage::Lease>(std::move(*shared))
                                  : stage_.holding(name, seen->files);
  if (!lease.has_value()) lease = stage_.keep(name, seen->path, seen->files, kNoCopies);
  if (!lease.has_value()) return lease.error();
  EVALCAR_RETURN_IF_ERROR(store_.move_lease(row.id, lease->dir));
  const std::string_view how = stage::method_name(lease->method);
  log::info(fmt::format("{}: leased after all ({})", title(row), how),
            event_of("leased", row).with("method", how));
  held_[row.id] = std::move(lease).value();
  exposed_.erase(row.id);
  return {};
}

}  // namespace evalcar::run
