#include "agent/watch/checkpoint_folder.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "agent/watch/one_save.h"
#include "agent/watch/tree.h"
#include "store/base/text.h"

namespace evalcar::watch {
namespace {

using checkpoint::WeightsKind;
using std::chrono::milliseconds;

constexpr int kTreeDepth = 2;
constexpr std::chrono::seconds kDeletePause{2};
/// Of so many glances one is a look.
constexpr std::size_t kGlancesOfALook = 16;
/// Twice the longest time for which an NFS client answers for a file without asking (acregmax).
constexpr std::chrono::seconds kCachedFor{120};

bool is_as_it_was(const FileSystem& files, const std::string& folder, const WatchedFile& file) {
  const auto info = files.info_followed(join_path(folder, file.relative));
  return info.has_value() && info->same_content_identity(file.identity);
}

}  // namespace

// ---- what it was

void CheckpointFolder::refuse(std::string why) {
  if (refused_ == why) return;
  refused_ = std::move(why);
  kinds_.clear();
  unsettled_ = true;
}

bool CheckpointFolder::waits() const {
  if (kinds_.empty()) return true;
  return std::any_of(kinds_.begin(), kinds_.end(),
                     [](const auto& entry) { return entry.second.verdict == Verdict::kWaiting; });
}

bool CheckpointFolder::complete_since(std::int64_t written_after_ns) const {
  for (const auto& [kind, memory] : kinds_) {
    if (memory.verdict != Verdict::kComplete) continue;
    for (const WatchedFile& file : memory.files) {
      if (file.identity.mtime_ns >= written_after_ns) return true;
    }
  }
  return false;
}

const WholeKind* CheckpointFolder::whole(WeightsKind kind) const {
  const auto memory = kinds_.find(kind);
  if (memory == kinds_.end() || !memory->second.whole.has_value()) return nullptr;
  return &*memory->second.whole;
}

std::map<WeightsKind, KnownContent> CheckpointFolder::contents() const {
  std::map<WeightsKind, KnownContent> contents;
  for (const auto& [kind, memory] : kinds_) {
    if (!memory.content.fingerprint.empty()) contents.emplace(kind, memory.content);
  }
  return contents;
}

void CheckpointFolder::tell_gone(const std::string& output_dir, std::vector<Sighting>& out) const {
  const auto tell = [&](WeightsKind kind, Verdict verdict, const char* reason) {
    Sighting told;
    told.step = step_;
    told.folder = name_;
    told.path = path(output_dir);
    told.kind = kind;
    told.verdict = verdict;
    told.reason = reason;
    out.push_back(std::move(told));
  };
  constexpr const char* kRemoved = "the folder was removed";
  for (const auto& [kind, memory] : kinds_) tell(kind, Verdict::kGone, kRemoved);
  if (!fresh() || !refused_.empty()) return;
  // Listed, and gone before any look: nobody else would ever hear of it.
  tell(WeightsKind::kRegular, Verdict::kWaiting, "it came and went before it could be looked at");
  tell(WeightsKind::kRegular, Verdict::kGone, kRemoved);
}

// ---- a look

void CheckpointFolder::watch(const std::string& path, Notifier& notifier) {
  if (notifier.watch(path)) watched_.insert(path);
}

void CheckpointFolder::unwatch(Notifier& notifier) {
  for (const std::string& path : watched_) notifier.unwatch(path);
  watched_.clear();
}

bool CheckpointFolder::watches_any_of(const std::set<std::string>& folders) const {
  return std::any_of(folders.begin(), folders.end(),
                     [this](const auto& folder) { return watched_.contains(folder); });
}

bool CheckpointFolder::unchanged_since_complete(const FolderSurroundings& around) {
  const std::string folder = path(around.options.output_dir);
  if (unsettled_ || names_.has_new(around.files, around.clock, folder)) return false;
  for (const auto& [kind, memory] : kinds_) {
    for (const WatchedFile& file : memory.files) {
      if (!is_as_it_was(around.files, folder, file)) return false;
    }
    // What is not there yet may come, into a folder that is.
    if (memory.verdict == Verdict::kNotStarted) {
      const Tree tree = look_at_tree(around.files, folder, kTreeDepth);
      if (names_.any_new(tree.names)) return false;
    }
  }
  return true;
}

// A save writes all of its files: whichever is asked for tells that there was another one.
bool CheckpointFolder::glance(const FileSystem& files, const Clock& clock,
                              const std::string& output_dir) {
  const std::string folder = path(output_dir);
  const std::size_t turn = glances_++;
  if (unsettled_ || turn % kGlancesOfALook == kGlancesOfALook - 1) return true;
  if (names_.has_new(files, clock, folder)) return true;
  std::size_t all = 0;
  for (const auto& [kind, memory] : kinds_) all += memory.files.size();
  if (all == 0) return true;
  std::size_t next = turn % all;
  for (const auto& [kind, memory] : kinds_) {
    if (next < memory.files.size()) return !is_as_it_was(files, folder, memory.files[next]);
    next -= memory.files.size();
  }
  return true;
}

/// A moment ago files of complete weights went: somebody deletes them, and on NFS or FUSE a file
/// that is held open then, as judging does, makes the delete fail.
bool CheckpointFolder::is_going(const FolderSurroundings& around) const {
  if (around.clock.monotonic_now() - changed_at_ >= kDeletePause) return false;
  const std::string folder = path(around.options.output_dir);
  for (const auto& [kind, memory] : kinds_) {
    if (memory.verdict != Verdict::kComplete) continue;
    for (const WatchedFile& file : memory.files) {
      const auto info = around.files.info_followed(join_path(folder, file.relative));
      if (!info.has_value() && info.error().code == ErrorCode::kNotFound) return true;
    }
  }
  return false;
}

FolderLook CheckpointFolder::look(const FolderSurroundings& around, std::vector<Sighting>& out) {
  FolderLook look;
  const MonotonicTime now = around.clock.monotonic_now();
  if (!refused_.empty()) {
    judged_at_ = now;
    unsettled_ = false;
    tell(around, checkpoint::Layout::kHuggingFace, WeightsKind::kRegular,
         {Verdict::kUnreadable, refused_}, out);
    return look;
  }
  if (unchanged_since_complete(around)) {
    judged_at_ = now;
    return look;
  }
  const FilesSeen all = look_at_all(around);
  look.news_kept = see_rewrites(around, all);
  if (is_going(around)) {
    unsettled_ = true;  // until the root's listing, or the next poll, tells
    return look;
  }
  judge(around, all, look, out);
  if (look.silent.empty() && !look.removed) judged_at_ = now;
  look.news_kept |= settle(around);
  return look;
}

/// Lists the folder, watches what is in it, and notes whether anything moved.
FilesSeen CheckpointFolder::look_at_all(const FolderSurroundings& around) {
  const std::string folder = path(around.options.output_dir);
  watch(folder, around.notifier);
  names_.begin_look(around.files, around.clock, folder, around.place == Place::kLocal);
  Tree tree = look_at_tree(around.files, folder, kTreeDepth);
  bool newly_watched = false;
  for (const std::string& subfolder : tree.folders) {
    if (watched_.contains(subfolder)) continue;
    watch(subfolder, around.notifier);
    newly_watched = true;
  }
  // What was written before a folder was watched gave no hint.
  if (newly_watched) tree = look_at_tree(around.files, folder, kTreeDepth);
  if (tree.signature != tree_signature_) {
    if (!unsettled_) stood_ = around.clock.monotonic_now() - changed_at_ >= kCachedFor;
    tree_signature_ = std::move(tree.signature);
    changed_at_ = around.clock.monotonic_now();
  }
  bytes_ = tree.bytes;
  written_ns_ = 0;
  for (const auto& [name, info] : tree.files) written_ns_ = std::max(written_ns_, info.mtime_ns);
  names_.take(tree.names);
  return std::move(tree.files);
}

/// True: what is to be known after a restart is another.
bool CheckpointFolder::see_rewrites(const FolderSurroundings& around, const FilesSeen& all) {
  if (kinds_.empty()) {  // the first look
    seen_from_the_beginning_ &=
        std::ranges::none_of(all, [](const auto& file) { return holds_weights(file.first); });
    for (const auto& [kind, content] : around.earlier) rewrite_.remember(content);
  }
  return rewrite_.see(all, longest_pause_of_a_save(around.options.settle_time), tail_of(around));
}

/// Is there a verdict of every kind that only a change on disk can alter? True: what is to be known
/// after a restart is another.
bool CheckpointFolder::settle(const FolderSurroundings& around) {
  unsettled_ = kinds_.empty();
  for (const auto& [kind, memory] : kinds_) {
    if (memory.verdict == Verdict::kComplete) rewrite_.complete(content_of(memory.files));
    unsettled_ |= memory.verdict != Verdict::kComplete && memory.verdict != Verdict::kNotStarted;
  }
  if (unsettled_) return rewrite_.note_tails(tail_of(around));
  rewrite_.complete();
  return true;
}

/// Only where files are read by their names alone, and nobody else's deletes mind that.
RewriteWatch::TailOf CheckpointFolder::tail_of(const FolderSurroundings& around) const {
  if (around.place != Place::kLocal) {
    return [](const std::string&, std::uint64_t) { return std::nullopt; };
  }
  return [&files = around.files, folder = path(around.options.output_dir)](
             const std::string& relative, std::uint64_t size) {
    return hash_of_tail(files, join_path(folder, relative), size);
  };
}

// ---- verdicts

void CheckpointFolder::judge(const FolderSurroundings& around, const FilesSeen& all,
                             FolderLook& look, std::vector<Sighting>& out) {
  const std::string folder = path(around.options.output_dir);
  const auto report = around.inspect(around.files, folder);
  if (const Status answers = around.files.answers(around.options.output_dir);
      !answers.has_value()) {
    look.silent = answers.error().message;  // whatever was found missing may be there
    return;
  }
  if (!report.has_value()) {
    if (report.error().code == ErrorCode::kNotFound && !around.files.info_followed(folder)) {
      look.removed = true;
      return;
    }
    return judge_unreadable(around, report.error(), out);
  }
  const std::size_t told = out.size();
  for (const checkpoint::KindState& state : report->kinds) {
    judge_kind(around, all, *report, state, out);
  }
  tell_of_same_generation(around, report->layout, told, out);
}

/// Weights that were rewritten make another generation of the checkpoint: whatever else of it is
/// complete belongs to that, though it was told before.
void CheckpointFolder::tell_of_same_generation(const FolderSurroundings& around,
                                               checkpoint::Layout layout, std::size_t from,
                                               std::vector<Sighting>& out) {
  std::optional<WeightsKind> rewritten;
  std::set<WeightsKind> behind;  // told after that
  for (std::size_t i = from; i < out.size(); ++i) {
    if (out[i].verdict != Verdict::kComplete) continue;
    if (out[i].rewritten) rewritten = out[i].kind, behind.clear();
    behind.insert(out[i].kind);
  }
  if (!rewritten.has_value()) return;
  for (auto& [kind, memory] : kinds_) {
    if (memory.verdict != Verdict::kComplete || behind.contains(kind)) continue;
    memory.verdict = Verdict::kGone;  // so that it is told
    tell(around, layout, kind, {Verdict::kComplete, ""}, out);
  }
}

void CheckpointFolder::judge_unreadable(const FolderSurroundings& around, const Error& error,
                                        std::vector<Sighting>& out) {
  const bool settled = around.clock.monotonic_now() - changed_at_ >= around.options.settle_time;
  // No permission, a disk that fails: a matter of the place, which may be mended.
  const bool of_the_place = error.code == ErrorCode::kIo || error.code == ErrorCode::kUnavailable;
  const Verdict at_rest = of_the_place ? Verdict::kTorn : Verdict::kUnreadable;
  tell(around, checkpoint::Layout::kHuggingFace, WeightsKind::kRegular,
       {settled ? at_rest : Verdict::kWaiting, error.message}, out);
}

/// Since it was listed (`all`), the folder has got another file, or one of `files` is another. What
/// tells that a save is done is looked at after the files were listed: it may say so of some that
/// the list has not, and the weights would be measured without their processor's configuration.
bool CheckpointFolder::written_meanwhile(const FolderSurroundings& around, const FilesSeen& all,
                                         const std::vector<WatchedFile>& files) const {
  const Tree now = look_at_tree(around.files, path(around.options.output_dir), 1);
  for (const auto& [name, info] : now.files) {
    if (!all.contains(name)) return true;
  }
  for (const WatchedFile& file : files) {
    const auto listed = all.find(file.relative);
    if (listed != all.end() && !listed->second.same_content_identity(file.identity)) return true;
  }
  return false;
}

void CheckpointFolder::judge_kind(const FolderSurroundings& around, const FilesSeen& all,
                                  const checkpoint::LayoutReport& report,
                                  const checkpoint::KindState& state, std::vector<Sighting>& out) {
  KindMemory& memory = kinds_[state.kind];
  const KnownContent nothing;
  const auto earlier = around.earlier.find(state.kind);
  const KnownContent& before = !memory.content.fingerprint.empty() ? memory.content
                               : earlier != around.earlier.end()   ? earlier->second
                                                                   : nothing;
  const std::string folder = path(around.options.output_dir);
  const RewriteWatch::TailOf tails = tail_of(around);
  const std::function<bool(const WholeKind&)> has_twin = [&](const WholeKind& whole) {
    return around.has_twin(state.kind, whole);
  };
  const auto common = around.common.find(state.kind);
  const bool has_common = seen_from_the_beginning_ && common != around.common.end();
  KindLook look = look_at_kind({.files = around.files,
                                .options = around.options,
                                .path = folder,
                                .all = all,
                                .report = report,
                                .state = state,
                                .before = before,
                                .rewrite = rewrite_,
                                .tail_of = tails,
                                .newer_complete = around.newer_complete,
                                .newer = around.newer(state.kind, report.layout),
                                .has_twin = has_twin,
                                .common = has_common ? &common->second : nullptr,
                                .place = around.place,
                                .stood = stood_,
                                .unchanged_for = std::chrono::duration_cast<milliseconds>(
                                    around.clock.monotonic_now() - changed_at_)});
  const Evidence& e = look.evidence;
  memory.whole = look.whole;
  const bool as_before = before.fingerprint == look.content.fingerprint;
  const bool whole = e.completeness == checkpoint::Completeness::kComplete;
  Decision decision =
      whole && as_before && e.left.empty() ? Decision{Verdict::kComplete, ""} : decide(e);

  const bool same = memory.verdict == Verdict::kComplete &&
                    memory.content.fingerprint == look.content.fingerprint;
  if (decision.verdict == Verdict::kComplete && !same &&
      written_meanwhile(around, all, look.files)) {
    decision = {Verdict::kWaiting, "written to while it was looked at"};
  }
  const bool complete = decision.verdict == Verdict::kComplete;
  if (complete) {
    memory.files = std::move(look.files);
    if (same) return;
    if (!e.doubt.empty() && !as_before) {
      spdlog::warn(
          "{} {}: taken for complete, since nothing moves; but {}: its weights may be of "
          "two saves",
          printable(name_), checkpoint::weights_kind_name(state.kind), printable(e.doubt));
    }
    memory.content = std::move(look.content);
    memory.verdict = Verdict::kGone;  // so that it is told
  } else if (decision.verdict == Verdict::kNotStarted && !e.left.empty()) {
    memory.files = std::move(look.files);  // another one of them, and it may have started
    if (memory.reason != decision.reason) {
      spdlog::warn("{} {}: not measured: {}", printable(name_),
                   checkpoint::weights_kind_name(state.kind), printable(decision.reason));
    }
  }
  tell(around, report.layout, state.kind, std::move(decision), out);
  if (complete) out.back().rewritten = e.rewritten;
}

void CheckpointFolder::tell(const FolderSurroundings& around, checkpoint::Layout layout,
                            WeightsKind kind, Decision decision, std::vector<Sighting>& out) {
  KindMemory& memory = kinds_[kind];
  if (memory.verdict == decision.verdict && memory.reason == decision.reason) return;
  memory.verdict = decision.verdict;
  memory.reason = decision.reason;
  Sighting sighting;
  sighting.step = step_;
  sighting.folder = name_;
  sighting.path = path(around.options.output_dir);
  sighting.layout = layout;
  sighting.kind = kind;
  sighting.verdict = decision.verdict;
  sighting.reason = std::move(decision.reason);
  sighting.folder_written_ns = written_ns_;
  if (decision.verdict == Verdict::kComplete) {
    sighting.fingerprint = memory.content.fingerprint;
    sighting.files = memory.files;
    sighting.folder_bytes = bytes_;
  }
  out.push_back(std::move(sighting));
}

}  // namespace evalcar::watch
