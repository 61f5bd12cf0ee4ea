#include "agent/run/sightings.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace evalcar::run {

using checkpoint::WeightsKind;

void Sightings::note(watch::Sighting seen) {
  recorder_.note_presence(seen);
  auto& of_kind = untold_[{seen.step, seen.kind}];
  const bool is_end = seen.verdict == watch::Verdict::kGone;
  const bool was_end = !of_kind.empty() && of_kind.back().verdict == watch::Verdict::kGone;
  if (was_end && of_kind.size() > 1) {
    of_kind.erase(of_kind.begin(), of_kind.end() - 1);  // it came and went before: once is enough
  } else if (!of_kind.empty() && !is_end && !was_end) {
    // What was held of it is its row's lease to be, whatever comes of its folder.
    const bool is_held = recorder_.is_held(of_kind.front());
    const bool rewritten = seen.verdict == watch::Verdict::kComplete;
    of_kind.erase(of_kind.begin() + (is_held && !rewritten ? 1 : 0), of_kind.end());
  }
  of_kind.push_back(std::move(seen));
}

Result<bool> Sightings::record(Slice& slice) {
  was_cut_ = false;
  bool recorded = false;
  while (!untold_.empty()) {
    was_cut_ = slice.was_cut();
    if (was_cut_) return recorded;
    EVALCAR_RETURN_IF_ERROR(run_.ensure_home());
    const auto chosen = next();
    EVALCAR_RETURN_IF_ERROR(record(chosen->first, chosen->second));
    untold_.erase(chosen);
    recorded = true;
    (void)slice.over();
  }
  recorded_.clear();
  recorder_.all_is_told();
  return recorded;
}

void Sightings::hold(Slice& slice) {
  if (!recorder_.may_hold()) return;
  for (auto noted = untold_.rbegin(); noted != untold_.rend(); ++noted) {
    for (const watch::Sighting& seen : noted->second) {
      if (seen.verdict == watch::Verdict::kComplete) recorder_.hold(seen);
    }
    if (slice.over()) return;
  }
}

/// Rewritten weights make another generation, which the other kinds of their checkpoint are then
/// recorded in.
Sightings::Untold::iterator Sightings::next() {
  const auto newest = std::prev(untold_.end());
  const auto first = untold_.lower_bound({newest->first.first, WeightsKind{}});
  const auto rewritten = std::find_if(first, untold_.end(), [](const auto& kind) {
    return std::ranges::any_of(kind.second, &watch::Sighting::rewritten);
  });
  return rewritten != untold_.end() ? rewritten : newest;
}

Status Sightings::record(const DiskView::Key& key, std::vector<watch::Sighting>& sightings) {
  const auto [step, kind] = key;
  for (; !sightings.empty(); sightings.erase(sightings.begin())) {
    const watch::Sighting& seen = sightings.front();
    const std::int64_t before = recorder_.checkpoint_of(step);
    EVALCAR_RETURN_IF_ERROR(recorder_.record(seen));
    if (recorder_.checkpoint_of(step) != before) record_again(step, kind);
    if (seen.verdict == watch::Verdict::kComplete) recorded_[key] = seen;
    averages_.look_again();
    best_.look_again();
  }
  return {};
}

/// This kind began another generation of its checkpoint. What was recorded in the last one a moment
/// ago was seen together with it, and belongs to the new one.
void Sightings::record_again(std::int64_t step, WeightsKind but) {
  for (auto other = recorded_.begin(); other != recorded_.end();) {
    if (other->first.first != step || other->first.second == but) {
      ++other;
      continue;
    }
    auto& untold = untold_[other->first];
    if (untold.empty()) untold.push_back(std::move(other->second));
    other = recorded_.erase(other);
  }
}

void Sightings::forget() {
  untold_.clear();
  recorded_.clear();
}

}  // namespace evalcar::run
