#include "agent/publish/event_log.h"

#include <algorithm>
#include <span>

#include "agent/publish/log_limits.h"
#include "store/base/hash.h"

namespace evalcar::publish {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20U;
/// An event of ours has some numbers and a table.
constexpr std::uint64_t kMaxRecord = std::uint64_t{64} << 20U;

/// What an event says, less when: its first field, a double. Of 64 bits: two of a million events
/// are taken for the same one once in forty million such files.
std::uint64_t content_of(std::string_view event) {
  constexpr std::size_t kTimeBytes = 9;
  const std::string_view content = event.substr(std::min(event.size(), kTimeBytes));
  return xxh3_64(std::as_bytes(std::span(content)));
}

}  // namespace

void EventLog::forget() {
  seen_.reset();
  known_ = false;
  whole_bytes_ = 0;
  records_ = 0;
  there_.clear();
}

void EventLog::learn(std::string_view event) {
  there_.insert(content_of(event));
  ++records_;
}

Status EventLog::refresh() {
  const auto info = files_.info_followed(path_);
  if (!info.has_value()) {
    forget();
    if (info.error().code != ErrorCode::kNotFound) return info.error();
    known_ = true;
    return {};
  }
  if (!seen_.has_value() || !seen_->same_content_identity(*info)) {
    forget();
    if (info->size_bytes > kMaxLogBytes) {
      return make_error(ErrorCode::kCorruption, path_ + ": " + std::to_string(info->size_bytes) +
                                                    " bytes, expected at most " +
                                                    std::to_string(kMaxLogBytes));
    }
    seen_ = *info;
  }
  while (!known_) {
    EVALCAR_RETURN_IF_ERROR(read_piece());
    if (!known_ && enough_ && enough_()) {
      return make_error(ErrorCode::kCancelled, path_ + ": is read on in the next turn");
    }
  }
  return {};
}

/// The next records, or all that is whole is learned.
Status EventLog::read_piece() {
  const std::uint64_t rest = seen_->size_bytes - whole_bytes_;
  std::uint64_t size = std::min(kPieceBytes, rest);
  EVALCAR_ASSIGN_OR_RETURN(const auto file, files_.open_readable(path_));
  std::string piece;
  Records found;
  while (true) {
    piece.resize(static_cast<std::size_t>(size));
    EVALCAR_RETURN_IF_ERROR(
        file->read_exactly_at(whole_bytes_, std::as_writable_bytes(std::span(piece)), path_));
    found = read_records(piece);
    const auto first = record_bytes(piece);
    const bool longer = found.whole_bytes == 0 && first.has_value() && *first > size;
    if (!longer || *first > std::min(rest, kMaxRecord)) break;
    size = *first;
  }
  for (const std::string& event : found.data) learn(event);
  whole_bytes_ += found.whole_bytes;
  known_ = found.whole_bytes == 0 || whole_bytes_ == seen_->size_bytes;
  return {};
}

Status EventLog::append(const std::vector<TimedEvent>& events) {
  if (events.empty()) return {};
  EVALCAR_RETURN_IF_ERROR(make_directories(files_, parent_path(path_)));
  EVALCAR_RETURN_IF_ERROR(refresh());
  const bool is_new = !seen_.has_value();
  if (!is_new && whole_bytes_ != seen_->size_bytes) {
    seen_.reset();  // whatever happens now, it is read again next time
    EVALCAR_RETURN_IF_ERROR(files_.truncate(path_, whole_bytes_));
    EVALCAR_ASSIGN_OR_RETURN(seen_, files_.info_followed(path_));
  }
  std::string bytes;
  std::vector<std::string> fresh;
  if (records_ == 0) fresh.push_back(version_event(events.front().wall_time_s));
  const std::size_t before = fresh.size();
  std::unordered_set<std::uint64_t> taken;
  for (const TimedEvent& one : events) {
    const std::uint64_t content = content_of(one.event);
    if (!there_.contains(content) && taken.insert(content).second) fresh.push_back(one.event);
  }
  if (fresh.size() == before) return {};
  for (const std::string& event : fresh) bytes += record(event);
  seen_.reset();
  EVALCAR_ASSIGN_OR_RETURN(const auto file, files_.open_appendable(path_));
  EVALCAR_RETURN_IF_ERROR(file->append(bytes));
  EVALCAR_RETURN_IF_ERROR(file->sync());
  EVALCAR_RETURN_IF_ERROR(file->close());
  if (is_new) EVALCAR_RETURN_IF_ERROR(files_.sync_directory(parent_path(path_)));
  const auto info = files_.info_followed(path_);
  if (info.has_value() && info->size_bytes == whole_bytes_ + bytes.size()) {
    for (const std::string& event : fresh) learn(event);
    whole_bytes_ += bytes.size();
    seen_ = *info;
  }
  return {};
}

}  // namespace evalcar::publish
