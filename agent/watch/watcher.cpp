#include "agent/watch/watcher.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "agent/watch/elsewhere.h"
#include "store/checkpoint/layout.h"

namespace evalcar::watch {
namespace {

using std::chrono::milliseconds;

/// The newest folders are looked at by every poll.
constexpr std::size_t kNewestPolled = 20;
/// Folders at rest that one poll glances at, besides these: at old ones, of which a change is least
/// expected.
constexpr std::size_t kSettledPerPoll = 200;
constexpr std::size_t kNewestWatched = 4;
/// Between two looks at what lies beside, while there is no checkpoint.
constexpr std::chrono::minutes kElsewherePause{1};
constexpr std::size_t kMostRemembered = 300;
/// Of these what was seen is remembered beyond this process: no trainer writes so many at once.
constexpr std::size_t kMostUnfinished = 64;
constexpr std::size_t kMostFilesRemembered = 4096;

Inspect inspect_with(const std::string& base_model) {
  checkpoint::LayoutOptions options;
  options.base_model = base_model;
  return [options](const FileSystem& files, const std::string& dir) {
    return checkpoint::inspect_layout(files, dir, options);
  };
}

}  // namespace

Watcher::Watcher(const FileSystem& files, const Clock& clock, Notifier& notifier,
                 WatchOptions options, Inspect inspect)
    : files_(files),
      clock_(clock),
      notifier_(notifier),
      options_(std::move(options)),
      inspect_(inspect ? std::move(inspect) : inspect_with(options_.base_model)),
      listing_(files, options_.output_dir, options_.pattern),
      last_look_(clock.monotonic_now() - options_.shortest_pause),
      last_poll_(clock.monotonic_now()),
      pace_(options_.shortest_pause) {}

void Watcher::begin(KnownContents known, UnfinishedFolders unfinished) {
  for (auto& [step, folder] : folders_) folder.unwatch(notifier_);
  folders_.clear();
  common_.clear();
  listed_ = false;
  remembered_ = std::move(known);
  remembered_unfinished_ = std::move(unfinished);
  ++unfinished_changes_;
  sweep_.reset();
  rest_over_at_.reset();
  scan_all_ = true;
}

// ---- when to look

void Watcher::take_hints() {
  Notifier::Hints hints = notifier_.take();
  if (hints.overflowed) {
    spdlog::warn("{}: too many changes for the kernel's queue; looking at everything",
                 options_.output_dir);
    scan_all_ = true;
  }
  for (const std::string& folder : hints.folders) {
    // The output directory's own, or that of a parent while it does not exist.
    if (folder.size() <= options_.output_dir.size()) list_again_ = true;
    hinted_.insert(folder);
  }
}

bool Watcher::look_due() const {
  const MonotonicTime now = clock_.monotonic_now();
  const bool hinted = scan_all_ || list_again_ || !hinted_.empty();
  if (hinted && now - last_look_ >= pace_.pause()) return true;
  return until_due() == milliseconds(0);
}

bool Watcher::wants_hints() const { return clock_.monotonic_now() - last_look_ >= pace_.pause(); }

milliseconds Watcher::until_due() const {
  const MonotonicTime now = clock_.monotonic_now();
  if (sweep_.has_value()) return milliseconds(0);
  MonotonicTime due = last_poll_ + options_.poll_interval;
  // While hints are not wanted, nobody knows whether there are any.
  if (scan_all_ || list_again_ || !hinted_.empty() || !wants_hints()) {
    due = std::min(due, last_look_ + pace_.pause());
  }
  due = std::min(due, rest_over_at_.value_or(due));
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(due - now));
}

std::optional<MonotonicTime> Watcher::rest_is_over(const CheckpointFolder& folder,
                                                   MonotonicTime after) const {
  if (!folder.unsettled()) return std::nullopt;
  for (const milliseconds rest : {short_rest(options_.settle_time), options_.settle_time}) {
    if (folder.changed_at() + rest > after) return folder.changed_at() + rest;
  }
  return std::nullopt;
}

/// Of the newest folders, which every poll looks at: of an older one it may be said too early.
bool Watcher::rests(std::int64_t step, MonotonicTime since) const {
  const auto folder = folders_.find(step);
  return !sweep_.has_value() && trouble_.empty() && folder != folders_.end() &&
         !folder->second.fresh() && last_poll_ >= since &&
         last_poll_ - folder->second.changed_at() >= options_.settle_time;
}

bool Watcher::looked_at(std::int64_t step, MonotonicTime after) const {
  if (!trouble_.empty() || listed_at_ <= after) return false;
  const auto folder = folders_.find(step);
  return folder == folders_.end() || folder->second.judged_at() > after;
}

std::vector<Sighting> Watcher::step() {
  std::vector<Sighting> out;
  take_hints();
  if (!sweep_.has_value() && !look_due()) return out;
  const MonotonicTime now = clock_.monotonic_now();
  const auto worked = clock_.thread_time();
  if (!sweep_.has_value()) begin_sweep(now, out);
  if (trouble_.empty()) look_at_folders(*sweep_, now + options_.longest_step, out);
  pace_.looked(clock_.monotonic_now() - now, clock_.thread_time() - worked,
               file_system_.has_value() && file_system_->local);
  if (trouble_.empty() && !sweep_->ended) return out;
  sweep_.reset();
  note_rest();
  looked_ = true;
  return out;
}

/// Asked at every turn of the loop, of thousands of folders: only a look changes it.
void Watcher::note_rest() {
  rest_over_at_.reset();
  for (const auto& [step, folder] : folders_) {
    const auto over = rest_is_over(folder, last_look_);
    if (over.has_value()) rest_over_at_ = std::min(*over, rest_over_at_.value_or(*over));
  }
}

void Watcher::begin_sweep(MonotonicTime now, std::vector<Sighting>& out) {
  Sweep& sweep = sweep_.emplace(Sweep{});
  sweep.poll = scan_all_ || now - last_poll_ >= options_.poll_interval;
  sweep.hinted = std::exchange(hinted_, {});
  sweep.asked_for = std::exchange(asked_for_, {});
  sweep.previous_look = std::exchange(last_look_, now);
  if (sweep.poll) last_poll_ = now;
  if (sweep.poll || list_again_) {
    scan_all_ = list_again_ = false;
    list_folders(out);
  }
}

Watcher::Wanted Watcher::wants(Sweep& sweep, std::int64_t step, const CheckpointFolder& folder) {
  const auto over = rest_is_over(folder, sweep.previous_look);
  const bool settles_now = over.has_value() && *over <= last_look_;
  const bool polled = sweep.poll && (folder.unsettled() || sweep.rank < kNewestPolled);
  bool glance = false;
  if (sweep.poll && !polled && sweep.at_rest < kSettledPerPoll && step < round_robin_) {
    glance = true;
    ++sweep.at_rest;
    round_robin_ = step;  // the next poll goes on below
  }
  if (folder.watches_any_of(sweep.hinted) || sweep.asked_for.contains(step) || settles_now ||
      folder.fresh() || polled || (sweep.newer_became_complete && folder.unsettled()))
    return Wanted::kLook;
  return glance ? Wanted::kGlance : Wanted::kNothing;
}

/// Newest first: what a newer complete checkpoint says about older ones is known when they come.
void Watcher::look_at_folders(Sweep& sweep, MonotonicTime until, std::vector<Sighting>& out) {
  auto below = folders_.upper_bound(sweep.below);
  while (below != folders_.begin()) {
    auto& [step, folder] = *--below;
    sweep.below = step;
    const std::size_t rank = sweep.rank;
    const Wanted wanted = wants(sweep, step, folder);
    ++sweep.rank;
    if (wanted == Wanted::kLook ||
        (wanted == Wanted::kGlance && folder.glance(files_, clock_, options_.output_dir))) {
      const std::size_t told = out.size();
      look(step, folder, out);
      if (!trouble_.empty()) return;  // it went silent
      for (std::size_t i = told; i < out.size(); ++i) {
        sweep.newer_became_complete |= out[i].verdict == Verdict::kComplete;
      }
      if (!folder.unsettled() && rank >= kNewestWatched) folder.unwatch(notifier_);
    }
    if (step == std::numeric_limits<std::int64_t>::min()) break;
    sweep.below = step - 1;
    if (wanted != Wanted::kNothing && below != folders_.begin() && clock_.monotonic_now() >= until)
      return;
  }
  if (sweep.poll && sweep.at_rest < kSettledPerPoll) {
    round_robin_ = std::numeric_limits<std::int64_t>::max();
  }
  sweep.ended = true;
}

void Watcher::look(std::int64_t step, CheckpointFolder& folder, std::vector<Sighting>& out) {
  const std::map<checkpoint::WeightsKind, KnownContent> nothing;
  if (folder.fresh()) {
    const auto earlier = remembered_unfinished_.find(step);
    if (earlier != remembered_unfinished_.end()) {
      folder.remember(earlier->second);
      remembered_unfinished_.erase(earlier);
    }
  }
  Place place = Place::kUnknown;
  if (file_system_.has_value()) place = file_system_->local ? Place::kLocal : Place::kRemote;
  const auto earlier = remembered_.find(step);
  const std::size_t told = out.size();
  const FolderLook look = folder.look(
      {.files = files_,
       .clock = clock_,
       .notifier = notifier_,
       .options = options_,
       .inspect = inspect_,
       .place = place,
       .earlier = earlier == remembered_.end() ? nothing : earlier->second,
       .newer_complete = [this, step](std::int64_t after) { return newer_complete(step, after); },
       .newer = [this, step](checkpoint::WeightsKind kind,
                             checkpoint::Layout layout) { return newer(step, kind, layout); },
       .has_twin = [this, step](checkpoint::WeightsKind kind,
                                const WholeKind& whole) { return has_twin(step, kind, whole); },
       .common = common_},
      out);
  for (std::size_t i = told; i < out.size(); ++i) {
    if (out[i].verdict != Verdict::kComplete) continue;
    if (const WholeKind* whole = folder.whole(out[i].kind)) common_[out[i].kind].add(*whole);
  }
  if (!look.silent.empty()) {
    trouble_ = look.silent;
    scan_all_ = true;
  }
  list_again_ |= look.removed;
  if (look.news_kept) ++unfinished_changes_;
}

/// A checkpoint with a higher step is complete, and a file of it is not older than that.
bool Watcher::newer_complete(std::int64_t step, std::int64_t written_after_ns) const {
  return std::any_of(folders_.upper_bound(step), folders_.end(), [&](const auto& newer) {
    return newer.second.complete_since(written_after_ns);
  });
}

const WholeKind* Watcher::newer(std::int64_t step, checkpoint::WeightsKind kind,
                                checkpoint::Layout layout) const {
  for (auto newer = folders_.upper_bound(step); newer != folders_.end(); ++newer) {
    const WholeKind* whole = newer->second.whole(kind);
    if (whole != nullptr && whole->layout == layout) return whole;
  }
  return nullptr;
}

bool Watcher::has_twin(std::int64_t step, checkpoint::WeightsKind kind,
                       const WholeKind& whole) const {
  return std::ranges::any_of(folders_, [&](const auto& other) {
    const WholeKind* its = other.second.whole(kind);
    return other.first != step && its != nullptr && has_same_small_files(*its, whole);
  });
}

std::optional<UnfinishedFolders> Watcher::unfinished() const {
  if (scan_all_ || sweep_.has_value() || !trouble_.empty()) return std::nullopt;
  UnfinishedFolders found;
  for (auto entry = folders_.rbegin(); entry != folders_.rend(); ++entry) {
    const auto& [step, folder] = *entry;
    if (!folder.unsettled()) continue;
    state::UnfinishedFolder memory = folder.memory();
    memory.step = step;
    // An earlier process may have seen what this one has not looked at yet.
    const auto earlier = remembered_unfinished_.find(step);
    if (earlier != remembered_unfinished_.end()) memory = earlier->second;
    if (memory.files.empty() || memory.files.size() > kMostFilesRemembered) continue;
    found.emplace(step, std::move(memory));
    if (found.size() == kMostUnfinished) break;
  }
  return found;
}

bool Watcher::settled() const {
  if (scan_all_ || list_again_ || sweep_.has_value()) return false;
  for (const auto& [step, folder] : folders_) {
    if (folder.waits()) return false;
  }
  return true;
}

// ---- which folders there are

void Watcher::list_folders(std::vector<Sighting>& out) {
  notifier_.watch(options_.output_dir);  // before looking: what comes later gives a hint
  const auto listed = listing_.read();
  if (!listed.has_value()) {
    listed_ = false;
    return wait_for_root(listed.error());
  }
  trouble_.clear();
  for (const std::string& parent : watched_parents_) notifier_.unwatch(parent);
  watched_parents_.clear();
  look_at_file_system();
  if (listed->empty()) {
    look_elsewhere();
  } else {
    elsewhere_.clear();
  }
  take_listed(*listed, out);
  listed_ = true;
  listed_at_ = last_look_;
}

/// Maybe another folder is the one that was meant.
void Watcher::look_elsewhere() {
  const MonotonicTime now = clock_.monotonic_now();
  if (now < elsewhere_due_) return;
  elsewhere_due_ = now + kElsewherePause;
  std::string found = watch::look_elsewhere(files_, options_.output_dir, options_.pattern).text();
  if (elsewhere_.empty() && !found.empty()) spdlog::warn("{}", found);
  elsewhere_ = std::move(found);
}

void Watcher::wait_for_root(const Error& why) {
  trouble_ = why.message;
  // Its parents may lie on the same mount that does not answer, and are asked without a limit.
  if (why.code == ErrorCode::kUnavailable) return;
  // Appears later, or was unmounted for a while: nothing is concluded from a root that is not
  // there. The nearest parent tells when it comes.
  for (std::string parent = parent_path(options_.output_dir);; parent = parent_path(parent)) {
    if (notifier_.watch(parent)) watched_parents_.insert(parent);
    if (watched_parents_.contains(parent) || parent == parent_path(parent)) break;
  }
}

void Watcher::take_listed(const std::vector<ListedFolder>& listed, std::vector<Sighting>& out) {
  std::set<std::int64_t> present;
  for (const ListedFolder& entry : listed) {
    auto folder = folders_.find(entry.step);
    if (entry.unclear && folder == folders_.end()) continue;
    present.insert(entry.step);
    if (folder == folders_.end()) {
      folder =
          folders_.try_emplace(entry.step, entry.step, entry.name, clock_.monotonic_now()).first;
      if (listed_ && !entry.unclear && !remembered_.contains(entry.step) &&
          !remembered_unfinished_.contains(entry.step)) {
        folder->second.came_while_watched();
      }
    }
    if (!entry.unclear) folder->second.refuse(entry.refused);
  }
  forget_gone(present, out);
}

void Watcher::forget_gone(const std::set<std::int64_t>& present, std::vector<Sighting>& out) {
  for (auto entry = folders_.begin(); entry != folders_.end();) {
    auto& [step, folder] = *entry;
    if (present.contains(step)) {
      ++entry;
      continue;
    }
    folder.tell_gone(options_.output_dir, out);
    forget(step, folder);
    entry = folders_.erase(entry);
  }
}

/// It may come back.
void Watcher::forget(std::int64_t step, CheckpointFolder& folder) {
  for (auto& [kind, content] : folder.contents()) {
    remembered_[step][kind] = std::move(content);
    // The rows know the others, too; a delete that is seen half done is one of the newest.
    if (remembered_.size() > kMostRemembered) remembered_.erase(remembered_.begin());
  }
  if (folder.unsettled()) {  // it may only be away for a moment
    remembered_unfinished_[step] = folder.memory();
    if (remembered_unfinished_.size() > kMostUnfinished) {
      remembered_unfinished_.erase(remembered_unfinished_.begin());
    }
  }
  folder.unwatch(notifier_);
  ++unfinished_changes_;
}

void Watcher::look_at_file_system() {
  const auto type = files_.file_system_type(options_.output_dir);
  if (!type.has_value()) return;
  FileSystemKind kind = file_system_kind(*type);
  if (file_system_.has_value() && file_system_->name == kind.name) return;
  file_system_ = std::move(kind);
  if (file_system_->local) return;
  spdlog::info(
      "{} is on {}: what other machines write there gives no notice, so it is looked at every {} s "
      "(watch.poll_interval)",
      options_.output_dir, file_system_->name,
      std::chrono::duration<double>(options_.poll_interval).count());
}

WatchMode Watcher::mode() const {
  WatchMode mode;
  if (file_system_.has_value()) mode.file_system = file_system_->name;
  mode.reason = trouble_;
  if (mode.reason.empty()) mode.reason = notifier_.trouble();
  if (mode.reason.empty() && file_system_.has_value() && !file_system_->local) {
    mode.reason = "what other machines write to " + mode.file_system + " gives no notice";
  }
  mode.notices = mode.reason.empty();
  return mode;
}

}  // namespace evalcar::watch
