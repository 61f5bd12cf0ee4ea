#include "agent/watch/kind_look.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "agent/watch/one_save.h"

namespace evalcar::watch {
namespace {

using std::chrono::milliseconds;

/// When the last of the weights was written.
std::int64_t weights_written_ns(const std::vector<WatchedFile>& files) {
  std::int64_t written_ns = std::numeric_limits<std::int64_t>::min();
  for (const WatchedFile& file : files) {
    if (holds_weights(file.relative)) written_ns = std::max(written_ns, file.identity.mtime_ns);
  }
  return written_ns;
}

/// When anything in its folder was. A checkpoint that is older, of an earlier training, tells
/// nothing about who writes here.
std::int64_t last_written_ns(const FilesSeen& all) {
  std::int64_t written_ns = std::numeric_limits<std::int64_t>::min();
  for (const auto& [path, info] : all) written_ns = std::max(written_ns, info.mtime_ns);
  return written_ns;
}

/// Who the files of the kind are now; one that is not there makes it incomplete.
std::vector<WatchedFile> identify(const KindInFolder& kind, Evidence& e) {
  std::vector<WatchedFile> files;
  for (const std::string& relative : kind.state.files) {
    const auto info = kind.files.info_followed(join_path(kind.path, relative));
    if (!info.has_value()) {
      e.completeness = checkpoint::Completeness::kIncomplete;
      e.reason = info.error().message;
      break;
    }
    files.push_back({relative, *info});
  }
  return files;
}

/// Whether a file was written where it lies, by whoever wrote its content: a copy that keeps times,
/// or a move from another file system, goes through a folder in any order. A trainer may give the
/// file its name, mode or owner a moment later, a file server's times may be two clocks', and our
/// reading by links, as is done there, makes the ctime a later one.
bool is_original(const std::string& relative, const FileInfo& now, const KindInFolder& kind) {
  const auto listed = kind.all.find(relative);  // before it was read
  const FileInfo& info = listed == kind.all.end() ? now : listed->second;
  return std::chrono::nanoseconds(info.ctime_ns - info.mtime_ns) <= kind.options.settle_time;
}

/// The same of all weights.
bool are_original(const std::vector<WatchedFile>& files, const KindInFolder& kind) {
  return std::ranges::all_of(files, [&](const WatchedFile& file) {
    return !holds_weights(file.relative) || is_original(file.relative, file.identity, kind);
  });
}

/// Whether the files may be of two saves, or are beyond doubt.
void judge_saves(const KindInFolder& kind, const KindLook& look, Evidence& e) {
  const milliseconds longest_pause = longest_pause_of_a_save(kind.options.settle_time);
  LeftFromBefore left;
  if (kind.place != Place::kLocal ||
      !ranks_saved_together(kind.report.layout, look.files, kind.all, longest_pause)) {
    left = kind.rewrite.left_from_before(look.content, kind.tail_of);
  }
  e.left = why_ema_was_left(kind.report.layout, kind.state.kind, look.files, kind.all);
  e.doubt = left.doubt;
  if (e.doubt.empty()) {
    e.doubt =
        doubt_by_order(kind.report.layout, kind.state.kind, look.files, kind.all, longest_pause);
  }
  e.rewrite_done = ends_the_save(kind.report.layout, look.content, kind.all,
                                 /*weights_alone=*/e.replaced == Replaced::kAll);
  // Where sizes and times are the server's, or the client's memory of it, a file may seem to be
  // written again; and lmms-engine's last file is written while other ranks still write.
  const bool end_is_behind_all = kind.report.layout != checkpoint::Layout::kLmmsEngineFsdp2;
  e.mixed = left.mixed && kind.place == Place::kLocal && !(e.rewrite_done && end_is_behind_all);
}

/// What a delete has left of a checkpoint is whole as long as the weights are there: the small
/// files may go first. It is not another checkpoint, however long it stays so.
void look_for_a_delete(const KindInFolder& kind, KindLook& look) {
  if (!look.whole.has_value()) return;
  Evidence& e = look.evidence;
  std::string why;
  if (const auto missing = missing_of(kind.before, look.content); missing.has_value()) {
    why = *missing + " was there and is gone; the checkpoint is being deleted";
    look.whole.reset();
  } else if (kind.newer != nullptr && kind.before.fingerprint != look.content.fingerprint &&
             kind.options.base_model.empty()) {  // else that one's files stand in for missing ones
    const auto folder = kind.files.info_followed(kind.path);
    if (folder.has_value()) why = why_remnant(*look.whole, folder->mtime_ns, *kind.newer);
    if (!why.empty() && kind.has_twin(*look.whole)) why.clear();
  }
  if (why.empty()) return;
  e.completeness = checkpoint::Completeness::kIncomplete;
  e.reason = why;
}

/// EMA that somebody has begun to write has started at this step, though its folder is empty or
/// gone by now: a delete takes the files before the folders.
void look_for_ema_that_went(const KindInFolder& kind, Evidence& e) {
  const bool is_there = e.completeness == checkpoint::Completeness::kComplete ||
                        e.completeness == checkpoint::Completeness::kIncomplete;
  const std::string folder = checkpoint::LayoutOptions().ema_shard_folder;
  if (is_there || kind.state.kind != checkpoint::WeightsKind::kEma) return;
  if (!kind.before.fingerprint.empty() || !kind.rewrite.saw_weights_in(folder)) return;
  e.completeness = checkpoint::Completeness::kIncomplete;
  e.reason = folder + " held weights, and they are gone; the checkpoint is being deleted";
}

/// Where times are a server's, or its client's memory of them, a short rest tells nothing; and
/// shards of DCP's safetensors writer do not tell how many there will be.
bool is_like_all_others(const KindInFolder& kind, const KindLook& look) {
  const Evidence& e = look.evidence;
  return kind.common != nullptr && look.whole.has_value() && kind.place == Place::kLocal &&
         e.layout != checkpoint::Layout::kDcpSafetensors && !e.rewritten && e.doubt.empty() &&
         kind.common->has_all(*look.whole);
}

/// The end marker, if the configuration names one.
void look_for_marker(const KindInFolder& kind, std::int64_t written_ns, Evidence& e) {
  e.marker_wanted = !kind.options.end_marker.empty();
  const auto marker = kind.files.info_followed(join_path(kind.path, kind.options.end_marker));
  e.marker_there = e.marker_wanted && marker.has_value();
  if (e.marker_there && e.doubt.empty() && marker->mtime_ns < written_ns) {
    e.doubt = "the end marker is older than the weights";
  }
}

}  // namespace

KindLook look_at_kind(const KindInFolder& kind) {
  KindLook look;
  Evidence& e = look.evidence;
  e.layout = kind.report.layout;
  e.completeness = kind.state.completeness;
  e.reason = kind.state.reason;
  look_for_ema_that_went(kind, e);
  look.files = identify(kind, e);
  look.content = content_of(look.files);

  e.writer_done = kind.report.writer_done;
  constexpr const char* kLast = "trainer_state.json";
  const auto last = kind.files.info_followed(join_path(kind.path, kLast));
  e.trainer_state = last.has_value();
  e.trainer_state_is_copied = e.trainer_state && !is_original(kLast, *last, kind);
  const std::int64_t written_ns = weights_written_ns(look.files);
  e.newer_complete = kind.newer_complete(last_written_ns(kind.all));
  e.newer_written_later = kind.newer_complete(written_ns) && are_original(look.files, kind);
  e.rewritten =
      !kind.before.fingerprint.empty() && kind.before.fingerprint != look.content.fingerprint;
  // Where only the fingerprint is known, which files are other ones is not.
  e.replaced =
      kind.before.files.empty() ? Replaced::kNone : weights_replaced(kind.before, look.content);
  e.before_may_be_stale = kind.place == Place::kRemote && !kind.stood;
  judge_saves(kind, look, e);
  look_for_marker(kind, written_ns, e);
  e.unchanged_for = kind.unchanged_for;
  e.settle_time = kind.options.settle_time;
  if (e.completeness == checkpoint::Completeness::kComplete) {
    look.whole = whole_kind(base_name(kind.path), e.layout, look.files, e.trainer_state);
  }
  if (is_like_all_others(kind, look)) e.rest_of_whole_save = short_rest(e.settle_time);
  look_for_a_delete(kind, look);
  return look;
}

}  // namespace evalcar::watch
