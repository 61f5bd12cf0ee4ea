#include "agent/watch/watcher.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "agent/watch/tree.h"
#include "store/base/hash.h"
#include "store/base/text.h"

namespace evalcar::watch {
namespace {

using checkpoint::WeightsKind;
using std::chrono::milliseconds;

/// Folders at rest that one poll looks at, besides the newest.
constexpr std::size_t kSettledPerPoll = 200;
constexpr std::size_t kNewestWatched = 4;
constexpr std::size_t kMostRemembered = 300;
/// Of these what was seen is remembered beyond this process: no trainer writes so many at once.
constexpr std::size_t kMostUnfinished = 64;
constexpr std::size_t kMostFilesRemembered = 4096;
constexpr std::size_t kTailBytes = 4096;
constexpr int kTreeDepth = 2;
/// Under a storm of hints looking takes at most this part of one processor.
constexpr int kPauseOverLook = 20;
constexpr milliseconds kLongestPause{2'000};
constexpr std::size_t kMaxIgnored = 64;
constexpr std::chrono::seconds kDeletePause{2};
/// Twice the longest time for which an NFS client answers for a file without asking (acregmax).
constexpr std::chrono::seconds kCachedFor{120};

Watcher::Inspect inspect_with(const std::string& base_model) {
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
      last_look_(clock.monotonic_now() - options_.shortest_pause),
      last_poll_(clock.monotonic_now()),
      pause_(options_.shortest_pause) {}

void Watcher::begin(KnownContents known, UnfinishedFolders unfinished) {
  for (auto& [step, folder] : folders_) unwatch_all(folder);
  folders_.clear();
  remembered_ = std::move(known);
  remembered_unfinished_ = std::move(unfinished);
  ++unfinished_changes_;
  sweep_.reset();
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
  if (hinted && now - last_look_ >= pause_) return true;
  return until_due() == milliseconds(0);
}

bool Watcher::wants_hints() const { return clock_.monotonic_now() - last_look_ >= pause_; }

milliseconds Watcher::until_due() const {
  const MonotonicTime now = clock_.monotonic_now();
  if (sweep_.has_value()) return milliseconds(0);
  MonotonicTime due = last_poll_ + options_.poll_interval;
  // While hints are not wanted, nobody knows whether there are any.
  if (scan_all_ || list_again_ || !hinted_.empty() || !wants_hints()) {
    due = std::min(due, last_look_ + pause_);
  }
  for (const auto& [step, folder] : folders_) {
    const MonotonicTime settles = folder.changed_at + options_.settle_time;
    if (folder.unsettled && settles > last_look_) due = std::min(due, settles);
  }
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(due - now));
}

std::vector<Sighting> Watcher::step() {
  std::vector<Sighting> out;
  take_hints();
  if (!sweep_.has_value() && !look_due()) return out;
  const MonotonicTime now = clock_.monotonic_now();
  if (!sweep_.has_value()) begin_sweep(now, out);
  if (trouble_.empty()) look_at_folders(*sweep_, now + options_.longest_step, out);
  const auto took = std::chrono::ceil<milliseconds>(clock_.monotonic_now() - now);
  pause_ = std::clamp(kPauseOverLook * took, options_.shortest_pause,
                      std::max(options_.shortest_pause, kLongestPause));
  if (trouble_.empty() && !sweep_->ended) return out;
  sweep_.reset();
  looked_ = true;
  return out;
}

void Watcher::begin_sweep(MonotonicTime now, std::vector<Sighting>& out) {
  Sweep& sweep = sweep_.emplace(Sweep{});
  sweep.poll = scan_all_ || now - last_poll_ >= options_.poll_interval;
  sweep.hinted = std::exchange(hinted_, {});
  sweep.previous_look = std::exchange(last_look_, now);
  if (sweep.poll) last_poll_ = now;
  if (sweep.poll || list_again_) {
    scan_all_ = list_again_ = false;
    list_folders(out);
  }
}

bool Watcher::wants_look(Sweep& sweep, std::int64_t step, const Folder& folder) {
  const bool is_hinted =
      std::any_of(sweep.hinted.begin(), sweep.hinted.end(),
                  [&folder](const auto& hint) { return folder.watched.contains(hint); });
  const MonotonicTime settles = folder.changed_at + options_.settle_time;
  const bool settles_now =
      folder.unsettled && settles > sweep.previous_look && settles <= last_look_;
  const bool fresh = folder.kinds.empty();
  bool turn = sweep.poll && (folder.unsettled || sweep.rank < 20);
  if (sweep.poll && !turn && sweep.at_rest < kSettledPerPoll && step < round_robin_) {
    turn = true;
    ++sweep.at_rest;
    round_robin_ = step;  // the next poll goes on below
  }
  return is_hinted || settles_now || fresh || turn ||
         (sweep.newer_became_complete && folder.unsettled);
}

/// Newest first: what a newer complete checkpoint says about older ones is known when they come.
void Watcher::look_at_folders(Sweep& sweep, MonotonicTime until, std::vector<Sighting>& out) {
  auto below = folders_.upper_bound(sweep.below);
  while (below != folders_.begin()) {
    auto& [step, folder] = *--below;
    sweep.below = step;
    const std::size_t rank = sweep.rank;
    const bool wanted = wants_look(sweep, step, folder);
    ++sweep.rank;
    if (wanted) {
      const std::size_t told = out.size();
      look(step, folder, out);
      if (!trouble_.empty()) return;  // it went silent
      for (std::size_t i = told; i < out.size(); ++i) {
        sweep.newer_became_complete |= out[i].verdict == Verdict::kComplete;
      }
      if (!folder.unsettled && rank >= kNewestWatched) unwatch_all(folder);
    }
    if (step == std::numeric_limits<std::int64_t>::min()) break;
    sweep.below = step - 1;
    if (wanted && below != folders_.begin() && clock_.monotonic_now() >= until) return;
  }
  if (sweep.poll && sweep.at_rest < kSettledPerPoll) {
    round_robin_ = std::numeric_limits<std::int64_t>::max();
  }
  sweep.ended = true;
}

std::optional<UnfinishedFolders> Watcher::unfinished() const {
  if (scan_all_ || sweep_.has_value() || !trouble_.empty()) return std::nullopt;
  UnfinishedFolders found;
  for (auto entry = folders_.rbegin(); entry != folders_.rend(); ++entry) {
    const auto& [step, folder] = *entry;
    if (!folder.unsettled) continue;
    state::UnfinishedFolder memory = folder.rewrite.memory();
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
    if (folder.kinds.empty()) return false;
    for (const auto& [kind, memory] : folder.kinds) {
      if (memory.verdict == Verdict::kWaiting) return false;
    }
  }
  return true;
}

// ---- which folders there are

void Watcher::list_folders(std::vector<Sighting>& out) {
  notifier_.watch(options_.output_dir);  // before looking: what comes later gives a hint
  const auto entries = files_.list(options_.output_dir, kMaxFolderEntries);
  if (!entries.has_value()) {
    trouble_ = entries.error().message;
    // Its parents may lie on the same mount that does not answer, and are asked without a limit.
    if (entries.error().code == ErrorCode::kUnavailable) return;
    // Appears later, or was unmounted for a while: nothing is concluded from a root that is not
    // there. The nearest parent tells when it comes.
    for (std::string parent = parent_path(options_.output_dir);; parent = parent_path(parent)) {
      if (notifier_.watch(parent)) watched_parents_.insert(parent);
      if (watched_parents_.contains(parent) || parent == parent_path(parent)) break;
    }
    return;
  }
  trouble_.clear();
  for (const std::string& parent : watched_parents_) notifier_.unwatch(parent);
  watched_parents_.clear();
  look_at_file_system();
  std::set<std::int64_t> present;
  for (const DirectoryEntry& entry : *entries) {
    const auto step = checkpoint::step_of_name(entry.name, options_.pattern);
    if (!step.has_value()) {
      const std::string prefix = options_.pattern.substr(0, options_.pattern.find('{'));
      if (!prefix.empty() && entry.name.starts_with(prefix)) {
        ignore(entry.name, "its name is not " + options_.pattern + " with a whole number");
      }
      continue;
    }
    std::string refused;
    const Entry kind = judge_entry(entry, refused);
    // What cannot be asked of has neither come nor gone.
    if (kind == Entry::kNone || (kind == Entry::kUnclear && !folders_.contains(*step))) continue;
    present.insert(*step);
    auto& folder = folders_[*step];
    if (folder.name.empty()) folder.name = entry.name, folder.changed_at = clock_.monotonic_now();
    if (kind == Entry::kFolder && folder.refused != refused) {
      folder.refused = std::move(refused);
      folder.kinds.clear();
      folder.unsettled = true;
    }
  }
  forget_gone(present, out);
}

void Watcher::ignore(const std::string& name, const std::string& why) {
  if (ignored_.size() >= kMaxIgnored || !ignored_.insert(name).second) return;
  spdlog::info("{}: ignored: {}", printable(join_path(options_.output_dir, name)), why);
}

/// A link that leads to another checkpoint of this directory is no checkpoint of its own. One that
/// leads out is told as one that cannot be read: what lies there is not this run's.
Watcher::Entry Watcher::judge_entry(const DirectoryEntry& entry, std::string& refused) {
  if (entry.type == FileType::kDirectory) return Entry::kFolder;
  const std::string path = join_path(options_.output_dir, entry.name);
  const auto unless_gone = [](const Error& error) {
    return error.code == ErrorCode::kNotFound ? Entry::kNone : Entry::kUnclear;
  };
  const auto info = files_.info_followed(path);
  if (!info.has_value()) return unless_gone(info.error());
  if (info->type != FileType::kDirectory) return Entry::kNone;
  const auto target = files_.real_path(path);
  const auto root = files_.real_path(options_.output_dir);
  if (!target.has_value()) return unless_gone(target.error());
  if (!root.has_value()) return Entry::kUnclear;
  if (!target->starts_with(*root + "/")) {
    refused = path + ": is a link that leads out of the output directory, to " + *target +
              ": it is not followed";
  } else if (parent_path(*target) == *root &&
             checkpoint::step_of_name(base_name(*target), options_.pattern).has_value()) {
    ignore(entry.name, "a link to " + base_name(*target));
    return Entry::kNone;
  }
  return Entry::kFolder;
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

void Watcher::forget_gone(const std::set<std::int64_t>& present, std::vector<Sighting>& out) {
  for (auto entry = folders_.begin(); entry != folders_.end();) {
    auto& [step, folder] = *entry;
    if (present.contains(step)) {
      ++entry;
      continue;
    }
    for (const auto& [kind, memory] : folder.kinds) {
      if (!memory.content.fingerprint.empty()) remembered_[step][kind] = memory.content;
      // The rows know the others, too; a delete that is seen half done is one of the newest.
      if (remembered_.size() > kMostRemembered) remembered_.erase(remembered_.begin());
      Sighting gone;
      gone.step = step;
      gone.folder = folder.name;
      gone.path = path_of(folder);
      gone.kind = kind;
      gone.verdict = Verdict::kGone;
      gone.reason = "the folder was removed";
      out.push_back(std::move(gone));
    }
    if (folder.unsettled) {  // it may only be away for a moment
      remembered_unfinished_[step] = folder.rewrite.memory();
      if (remembered_unfinished_.size() > kMostUnfinished) {
        remembered_unfinished_.erase(remembered_unfinished_.begin());
      }
    }
    unwatch_all(folder);
    ++unfinished_changes_;
    entry = folders_.erase(entry);
  }
}

// ---- one folder

void Watcher::watch_folder(Folder& folder, const std::string& path) {
  if (notifier_.watch(path)) folder.watched.insert(path);
}

void Watcher::unwatch_all(Folder& folder) {
  for (const std::string& path : folder.watched) notifier_.unwatch(path);
  folder.watched.clear();
}

bool Watcher::unchanged_since_complete(const Folder& folder) const {
  if (folder.unsettled) return false;
  for (const auto& [kind, memory] : folder.kinds) {
    for (const WatchedFile& file : memory.files) {
      const auto info = files_.info_followed(join_path(path_of(folder), file.relative));
      if (!info.has_value() || !info->same_content_identity(file.identity)) return false;
    }
    // What is not there yet may come: no files to compare, so the tree is.
    if (memory.verdict == Verdict::kNotStarted) {
      const Tree tree = look_at_tree(files_, path_of(folder), kTreeDepth);
      if (tree.signature != folder.tree_signature) return false;
    }
  }
  return true;
}

/// A moment ago files of complete weights went: somebody deletes them, and on NFS or FUSE a file
/// that is held open then, as judging does, makes the delete fail.
bool Watcher::is_going(const Folder& folder) const {
  if (clock_.monotonic_now() - folder.changed_at >= kDeletePause) return false;
  for (const auto& [kind, memory] : folder.kinds) {
    if (memory.verdict != Verdict::kComplete) continue;
    for (const WatchedFile& file : memory.files) {
      const auto info = files_.info_followed(join_path(path_of(folder), file.relative));
      if (!info.has_value() && info.error().code == ErrorCode::kNotFound) return true;
    }
  }
  return false;
}

void Watcher::look(std::int64_t step, Folder& folder, std::vector<Sighting>& out) {
  if (!folder.refused.empty()) {
    folder.unsettled = false;
    return tell(step, folder, checkpoint::Layout::kHuggingFace, WeightsKind::kRegular,
                {Verdict::kUnreadable, folder.refused}, out);
  }
  if (unchanged_since_complete(folder)) return;
  const std::string path = path_of(folder);
  watch_folder(folder, path);
  Tree tree = look_at_tree(files_, path, kTreeDepth);
  bool newly_watched = false;
  for (const std::string& subfolder : tree.folders) {
    if (folder.watched.contains(subfolder)) continue;
    watch_folder(folder, subfolder);
    newly_watched = true;
  }
  // What was written before a folder was watched gave no hint.
  if (newly_watched) tree = look_at_tree(files_, path, kTreeDepth);
  if (tree.signature != folder.tree_signature) {
    if (!folder.unsettled) folder.stood = clock_.monotonic_now() - folder.changed_at >= kCachedFor;
    folder.tree_signature = std::move(tree.signature);
    folder.changed_at = clock_.monotonic_now();
  }
  folder.bytes = tree.bytes;
  see_rewrites(step, folder, tree.files);
  if (is_going(folder)) {
    folder.unsettled = true;  // until the root's listing, or the next poll, tells
    return;
  }
  judge(step, folder, tree.files, out);
  folder.unsettled = folder.kinds.empty();
  for (const auto& [kind, memory] : folder.kinds) {
    folder.unsettled |=
        memory.verdict != Verdict::kComplete && memory.verdict != Verdict::kNotStarted;
  }
  if (!folder.unsettled) {
    folder.rewrite.complete();
    ++unfinished_changes_;
  } else if (folder.rewrite.note_tails(tails_of(folder))) {
    ++unfinished_changes_;
  }
}

void Watcher::see_rewrites(std::int64_t step, Folder& folder, const FilesSeen& all) {
  if (folder.kinds.empty()) {  // the first look
    const auto earlier = remembered_unfinished_.find(step);
    if (earlier != remembered_unfinished_.end()) {
      folder.rewrite.remember(earlier->second);
      remembered_unfinished_.erase(earlier);
    }
    for (const auto& [kind, content] : remembered_[step]) folder.rewrite.remember(content);
  }
  const bool news =
      folder.rewrite.see(all, longest_pause_of_a_save(options_.settle_time), tails_of(folder));
  if (news) ++unfinished_changes_;
}

/// Where files are read by their names alone, and nobody else's deletes mind that.
std::optional<std::uint64_t> Watcher::tail_of(const Folder& folder, const std::string& path,
                                              std::uint64_t size) const {
  if (!file_system_.has_value() || !file_system_->local) return std::nullopt;
  const auto file = files_.open_readable(join_path(path_of(folder), path));
  if (!file.has_value()) return std::nullopt;
  std::array<std::byte, kTailBytes> bytes{};
  const std::uint64_t wanted = std::min<std::uint64_t>(size, bytes.size());
  const auto n = (*file)->read_at(size - wanted, std::span(bytes.data(), wanted));
  if (!n.has_value() || *n != wanted) return std::nullopt;
  return xxh3_64(std::span<const std::byte>(bytes.data(), wanted));
}

bool Watcher::newer_complete(std::int64_t step, std::int64_t written_after_ns) const {
  for (auto newer = folders_.upper_bound(step); newer != folders_.end(); ++newer) {
    for (const auto& [kind, memory] : newer->second.kinds) {
      if (memory.verdict != Verdict::kComplete) continue;
      for (const WatchedFile& file : memory.files) {
        if (file.identity.mtime_ns >= written_after_ns) return true;
      }
    }
  }
  return false;
}

void Watcher::judge(std::int64_t step, Folder& folder, const FilesSeen& all,
                    std::vector<Sighting>& out) {
  const auto report = inspect_(files_, path_of(folder));
  if (const Status answers = files_.answers(options_.output_dir); !answers.has_value()) {
    trouble_ = answers.error().message;  // whatever was found missing may be there
    scan_all_ = true;
    return;
  }
  if (!report.has_value()) {
    if (report.error().code == ErrorCode::kNotFound && !files_.info_followed(path_of(folder))) {
      list_again_ = true;  // removed meanwhile
      return;
    }
    return judge_unreadable(step, folder, report.error(), out);
  }
  const std::size_t told = out.size();
  for (const checkpoint::KindState& state : report->kinds) {
    judge_kind(step, folder, all, *report, state, out);
  }
  tell_of_same_generation(step, folder, report->layout, told, out);
}

/// Weights that were rewritten make another generation of the checkpoint: whatever else of it is
/// complete belongs to that, though it was told before.
void Watcher::tell_of_same_generation(std::int64_t step, Folder& folder, checkpoint::Layout layout,
                                      std::size_t from, std::vector<Sighting>& out) {
  std::optional<WeightsKind> rewritten;
  std::set<WeightsKind> behind;  // told after that
  for (std::size_t i = from; i < out.size(); ++i) {
    if (out[i].verdict != Verdict::kComplete) continue;
    if (out[i].rewritten) rewritten = out[i].kind, behind.clear();
    behind.insert(out[i].kind);
  }
  if (!rewritten.has_value()) return;
  for (auto& [kind, memory] : folder.kinds) {
    if (memory.verdict != Verdict::kComplete || behind.contains(kind)) continue;
    memory.verdict = Verdict::kGone;  // so that it is told
    tell(step, folder, layout, kind, {Verdict::kComplete, ""}, out);
  }
}

void Watcher::judge_unreadable(std::int64_t step, Folder& folder, const Error& error,
                               std::vector<Sighting>& out) {
  const bool settled = clock_.monotonic_now() - folder.changed_at >= options_.settle_time;
  // No permission, a disk that fails: a matter of the place, which may be mended.
  const bool of_the_place = error.code == ErrorCode::kIo || error.code == ErrorCode::kUnavailable;
  const Verdict at_rest = of_the_place ? Verdict::kTorn : Verdict::kUnreadable;
  tell(step, folder, checkpoint::Layout::kHuggingFace, WeightsKind::kRegular,
       {settled ? at_rest : Verdict::kWaiting, error.message}, out);
}

/// Since it was listed (`all`), the folder has got another file, or one of `files` is another. What
/// tells that a save is done is looked at after the files were listed: it may say so of some that
/// the list has not, and the weights would be measured without their processor's configuration.
bool Watcher::written_meanwhile(const Folder& folder, const FilesSeen& all,
                                const std::vector<WatchedFile>& files) const {
  const Tree now = look_at_tree(files_, path_of(folder), 1);
  for (const auto& [name, info] : now.files) {
    if (!all.contains(name)) return true;
  }
  for (const WatchedFile& file : files) {
    const auto listed = all.find(file.relative);
    if (listed != all.end() && !listed->second.same_content_identity(file.identity)) return true;
  }
  return false;
}

void Watcher::judge_kind(std::int64_t step, Folder& folder, const FilesSeen& all,
                         const checkpoint::LayoutReport& report, const checkpoint::KindState& state,
                         std::vector<Sighting>& out) {
  const std::string path = path_of(folder);
  KindMemory& memory = folder.kinds[state.kind];
  std::vector<WatchedFile> files;
  Evidence e;
  e.layout = report.layout;
  e.completeness = state.completeness;
  e.reason = state.reason;
  for (const std::string& relative : state.files) {
    const auto info = files_.info_followed(join_path(path, relative));
    if (!info.has_value()) {
      e.completeness = checkpoint::Completeness::kIncomplete;
      e.reason = info.error().message;
      break;
    }
    files.push_back({relative, *info});
  }
  KnownContent now = content_of(files);
  const KnownContent& before =
      memory.content.fingerprint.empty() ? remembered_[step][state.kind] : memory.content;

  e.writer_done = report.writer_done;
  e.trainer_state = files_.info_followed(join_path(path, "trainer_state.json")).has_value();
  std::int64_t written_ns = std::numeric_limits<std::int64_t>::min();
  for (const WatchedFile& file : files) {
    if (holds_weights(file.relative)) written_ns = std::max(written_ns, file.identity.mtime_ns);
  }
  e.newer_complete = newer_complete(step, std::numeric_limits<std::int64_t>::min());
  e.newer_written_later = newer_complete(step, written_ns);
  e.marker_wanted = !options_.end_marker.empty();
  const auto marker = files_.info_followed(join_path(path, options_.end_marker));
  e.marker_there = e.marker_wanted && marker.has_value();
  e.rewritten = !before.fingerprint.empty() && before.fingerprint != now.fingerprint;
  // Where only the fingerprint is known, which files are other ones is not.
  e.replaced = before.files.empty() ? Replaced::kNone : weights_replaced(before, now);
  e.before_may_be_stale = file_system_.has_value() && !file_system_->local && !folder.stood;
  const LeftFromBefore left = folder.rewrite.left_from_before(now, tails_of(folder));
  e.doubt = left.doubt;
  if (e.doubt.empty()) {
    e.doubt = doubt_by_order(report.layout, state.kind, files, all,
                             longest_pause_of_a_save(options_.settle_time));
  }
  if (e.marker_there && e.doubt.empty() && marker->mtime_ns < written_ns) {
    e.doubt = "the end marker is older than the weights";
  }
  e.rewrite_done =
      ends_the_save(report.layout, now, all, /*weights_alone=*/e.replaced == Replaced::kAll);
  // Where sizes and times are the server's, or the client's memory of it, a file may seem to be
  // written again; and lmms-engine's last file is written while other ranks still write.
  const bool end_is_behind_all = report.layout != checkpoint::Layout::kLmmsEngineFsdp2;
  e.mixed = left.mixed && file_system_.has_value() && file_system_->local &&
            !(e.rewrite_done && end_is_behind_all);
  e.unchanged_for =
      std::chrono::duration_cast<milliseconds>(clock_.monotonic_now() - folder.changed_at);
  e.settle_time = options_.settle_time;
  const bool whole = e.completeness == checkpoint::Completeness::kComplete;
  // What a delete has left of a checkpoint is whole as long as the weights are there: the small
  // files may go first. It is not another checkpoint, however long it stays so.
  if (const auto missing = missing_of(before, now); whole && missing.has_value()) {
    e.completeness = checkpoint::Completeness::kIncomplete;
    e.reason = *missing + " was there and is gone; the checkpoint is being deleted";
  }
  Decision decision = decide(e);
  if (whole && before.fingerprint == now.fingerprint) decision = {Verdict::kComplete, ""};

  const bool same =
      memory.verdict == Verdict::kComplete && memory.content.fingerprint == now.fingerprint;
  if (decision.verdict == Verdict::kComplete && !same && written_meanwhile(folder, all, files)) {
    decision = {Verdict::kWaiting, "written to while it was looked at"};
  }
  if (decision.verdict == Verdict::kComplete) {
    memory.files = std::move(files);
    if (same) return;
    if (!e.doubt.empty() && before.fingerprint != now.fingerprint) {
      spdlog::warn(
          "{} {}: taken for complete, since nothing moves; but {}: its weights may be of "
          "two saves",
          printable(folder.name), checkpoint::weights_kind_name(state.kind), printable(e.doubt));
    }
    memory.content = std::move(now);
    memory.verdict = Verdict::kGone;  // so that it is told
  }
  const bool complete = decision.verdict == Verdict::kComplete;
  tell(step, folder, report.layout, state.kind, std::move(decision), out);
  if (complete) out.back().rewritten = e.rewritten;
}

void Watcher::tell(std::int64_t step, Folder& folder, checkpoint::Layout layout, WeightsKind kind,
                   Decision decision, std::vector<Sighting>& out) {
  KindMemory& memory = folder.kinds[kind];
  if (memory.verdict == decision.verdict && memory.reason == decision.reason) return;
  memory.verdict = decision.verdict;
  memory.reason = decision.reason;
  Sighting sighting;
  sighting.step = step;
  sighting.folder = folder.name;
  sighting.path = path_of(folder);
  sighting.layout = layout;
  sighting.kind = kind;
  sighting.verdict = decision.verdict;
  sighting.reason = std::move(decision.reason);
  if (decision.verdict == Verdict::kComplete) {
    sighting.fingerprint = memory.content.fingerprint;
    sighting.files = memory.files;
    sighting.folder_bytes = folder.bytes;
  }
  out.push_back(std::move(sighting));
}

}  // namespace evalcar::watch
