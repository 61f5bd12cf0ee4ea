#include "agent/run/unfinished.h"

#include <vector>

namespace evalcar::run {
namespace {

/// A file that is being written changes at each look, and each storing is a synced write.
constexpr std::chrono::seconds kTakeBackPause{2};

}  // namespace

Result<watch::UnfinishedFolders> Unfinished::of(std::int64_t run_id) const {
  EVALCAR_ASSIGN_OR_RETURN(auto rows, store_.read().unfinished(run_id));
  watch::UnfinishedFolders folders;
  for (state::UnfinishedFolder& row : rows) folders.emplace(row.step, std::move(row));
  return folders;
}

Status Unfinished::step(std::int64_t run_id) {
  const std::uint64_t changes = watcher_.unfinished_changes();
  const MonotonicTime now = clock_.monotonic_now();
  if ((changes == seen_ && stored_.has_value()) || now < not_before_) return {};
  auto folders = watcher_.unfinished();
  if (!folders.has_value()) return {};
  if (!stored_.has_value()) {
    EVALCAR_ASSIGN_OR_RETURN(stored_, of(run_id));
  }
  std::vector<state::UnfinishedFolder> changed;
  std::vector<std::int64_t> ended;
  for (const auto& [step, folder] : *folders) {
    const auto before = stored_->find(step);
    if (before == stored_->end() || !(before->second == folder)) changed.push_back(folder);
  }
  for (const auto& [step, folder] : *stored_) {
    if (!folders->contains(step)) ended.push_back(step);
  }
  if (!changed.empty() || !ended.empty()) {
    EVALCAR_RETURN_IF_ERROR(store_.set_unfinished(run_id, changed, ended));
    not_before_ = now + kTakeBackPause;
  }
  stored_ = std::move(folders);
  seen_ = changes;
  return {};
}

std::optional<MonotonicTime> Unfinished::due() const {
  if (watcher_.unfinished_changes() == seen_ && stored_.has_value()) return std::nullopt;
  if (!watcher_.unfinished().has_value()) return std::nullopt;
  return not_before_;
}

void Unfinished::forget() { stored_.reset(); }

}  // namespace evalcar::run
