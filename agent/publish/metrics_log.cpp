#include "agent/publish/metrics_log.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "agent/publish/log_limits.h"
#include "store/base/crash_point.h"

namespace evalcar::publish {
namespace {

/// "evaluation" of a line; "" if it has none.
std::string key_of(const nlohmann::json& line) {
  if (!line.is_object()) return "";
  const auto key = line.find("evaluation");
  return key != line.end() && key->is_string() ? key->get<std::string>() : "";
}

}  // namespace

std::optional<std::int64_t> seq_of(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto seq = json.find("seq");
  if (seq == json.end() || !seq->is_number_integer()) return std::nullopt;
  return seq->get<std::int64_t>();
}

Status MetricsLog::ask_enough() const {
  if (!enough_ || !enough_()) return {};
  return make_error(ErrorCode::kCancelled, path_ + ": the rest is done in the next turn");
}

void MetricsLog::learn_line(std::uint64_t offset, const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return;
  Place place{offset, line.size(), std::nullopt};
  if (const auto seq = json.find("seq"); seq != json.end() && seq->is_number_integer()) {
    place.seq = seq->get<std::int64_t>();
    last_seq_ = std::max(last_seq_, *place.seq);
  }
  if (const std::string key = key_of(json); !key.empty()) lines_[key] = place;
}

Result<std::optional<std::string>> MetricsLog::read_line(const std::string& key,
                                                         const Place& place) const {
  EVALCAR_ASSIGN_OR_RETURN(const auto file, files_.open_readable(path_));
  std::string line(place.size, '\0');
  EVALCAR_RETURN_IF_ERROR(
      file->read_exactly_at(place.offset, std::as_writable_bytes(std::span(line)), path_));
  if (key_of(nlohmann::json::parse(line, nullptr, false)) != key) {
    return make_error(ErrorCode::kUnavailable, path_ + ": changed while it was read: at byte " +
                                                   std::to_string(place.offset) + " the line of " +
                                                   key + " was expected");
  }
  return std::optional(std::move(line));
}

void MetricsLog::forget_lines() {
  ++looks_;
  last_seq_ = 0;
  lines_.clear();
  lost_.clear();
  rewrite_.reset();
  seen_.reset();
}

Status MetricsLog::refresh() {
  const auto info = files_.info_followed(path_);
  if (!info.has_value()) {
    if (info.error().code != ErrorCode::kNotFound) return info.error();
    const bool known_empty =
        looks_ > 0 && !reading_.has_value() && lines_.empty() && last_seq_ == 0;
    reading_.reset();
    seen_.reset();
    if (!known_empty) forget_lines();
    return put_back();
  }
  if (!seen_.has_value() || !seen_->same_content_identity(*info)) {
    EVALCAR_RETURN_IF_ERROR(learn_all(*info));
  }
  return put_back();
}

/// A slice of it goes on with the file as it was at the beginning: if that is another one now,
/// anew.
Status MetricsLog::learn_all(const FileInfo& info) {
  if (!reading_.has_value() || !reading_->info.same_content_identity(info)) {
    reading_.reset();
    forget_lines();
    EVALCAR_ASSIGN_OR_RETURN(
        LineReader lines,
        LineReader::open(files_, path_, {.file_bytes = kMaxLogBytes, .line_bytes = kMaxLogBytes}));
    reading_.emplace(Reading{info, std::move(lines)});
  }
  LineReader& lines = reading_->lines;
  while (true) {
    const auto found = lines.next();
    if (!found.has_value()) {
      reading_.reset();
      return found.error();
    }
    if (*found == LineReader::Found::kEnd) break;
    if (*found == LineReader::Found::kLine) {
      const std::uint64_t begin = lines.line_begin();
      learn_line(begin, lines.take_line());
    } else if (lines.bytes_left() > 0) {
      EVALCAR_RETURN_IF_ERROR(ask_enough());
    }
  }
  const std::uint64_t whole = lines.lines_end();
  const bool is_torn = whole != lines.file_bytes();
  reading_.reset();
  seen_ = info;
  return is_torn ? cut_tail(whole) : Status();
}

Status MetricsLog::cut_tail(std::uint64_t whole_bytes) {
  seen_.reset();
  EVALCAR_RETURN_IF_ERROR(ask_fence());
  EVALCAR_RETURN_IF_ERROR(files_.truncate(path_, whole_bytes));
  EVALCAR_ASSIGN_OR_RETURN(const auto file, files_.open_appendable(path_));
  EVALCAR_RETURN_IF_ERROR(file->sync());
  EVALCAR_RETURN_IF_ERROR(file->close());
  EVALCAR_ASSIGN_OR_RETURN(seen_, files_.info_followed(path_));
  return {};
}

/// The lines that lack, and what a failed sync makes of the file.
Status MetricsLog::put_back() {
  const Status done = [&]() -> Status {
    const bool among = !lost_.empty() && lost_.front().first < last_seq_;
    const bool is_there = seen_.has_value();
    if (is_there && (suspect_ || among || rewrite_.has_value())) return rewrite();
    while (!lost_.empty()) {
      EVALCAR_RETURN_IF_ERROR(append_line(lost_.front().second));
      lost_.pop_front();
      if (!seen_.has_value()) {
        return make_error(ErrorCode::kUnavailable, path_ + ": was changed by somebody else");
      }
      if (!lost_.empty()) EVALCAR_RETURN_IF_ERROR(ask_enough());
    }
    return {};
  }();
  if (!done.has_value() && done.error().code != ErrorCode::kCancelled) {
    rewrite_.reset();
    lost_.clear();  // whoever missed them looks again
  }
  return done;
}

Status MetricsLog::rewrite() {
  if (!rewrite_.has_value()) {
    EVALCAR_ASSIGN_OR_RETURN(LogRewrite begun,
                             LogRewrite::begin(files_, path_, std::exchange(lost_, {})));
    rewrite_.emplace(std::move(begun));
  }
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const LogRewrite::Step done, rewrite_->step());
    if (done == LogRewrite::Step::kLast) break;
    if (done == LogRewrite::Step::kPiece) EVALCAR_RETURN_IF_ERROR(ask_enough());
  }
  EVALCAR_RETURN_IF_ERROR(ask_fence());
  seen_.reset();
  EVALCAR_RETURN_IF_ERROR(rewrite_->replace());
  rewrite_.reset();
  suspect_ = false;
  return refresh();
}

Status MetricsLog::restore(LogRewrite::Lines lines) {
  if (lines.empty()) return {};
  EVALCAR_RETURN_IF_ERROR(refresh());
  std::sort(lines.begin(), lines.end());
  lost_ = std::move(lines);
  return put_back();
}

Status MetricsLog::replace() {
  if (!files_.info_followed(path_).has_value()) return {};
  suspect_ = true;
  return refresh();
}

Result<std::optional<std::string>> MetricsLog::line_of(const std::string& evaluation_key) const {
  const auto found = lines_.find(evaluation_key);
  if (found == lines_.end()) return std::optional<std::string>();
  return read_line(found->first, found->second);
}

Result<std::optional<std::string>> MetricsLog::line_with_seq(std::int64_t seq) const {
  for (const auto& [key, place] : lines_) {
    if (place.seq == seq) return read_line(key, place);
  }
  return std::optional<std::string>();
}

Status MetricsLog::append(const std::string& line) {
  EVALCAR_RETURN_IF_ERROR(refresh());
  return append_line(line);
}

Status MetricsLog::append_line(const std::string& line) {
  const bool is_new = !seen_.has_value();
  const std::uint64_t size_before = is_new ? 0 : seen_->size_bytes;
  seen_.reset();  // whatever happens now, read it again next time
  EVALCAR_ASSIGN_OR_RETURN(const auto file, files_.open_appendable(path_));
  EVALCAR_RETURN_IF_ERROR(ask_fence());
  if (Status written = file->append(line + "\n"); !written.has_value()) {
    (void)file->close();
    (void)files_.truncate(path_, size_before);  // best effort; refresh() cuts what stays
    return written;
  }
  if (Status synced = file->sync(); !synced.has_value()) {
    suspect_ = true;
    (void)file->close();
    return synced;
  }
  if (Status closed = file->close(); !closed.has_value()) {
    suspect_ = true;
    return closed;
  }
  if (is_new) EVALCAR_RETURN_IF_ERROR(files_.sync_directory(parent_path(path_)));
  // A long run's file need not be read for each line; unless somebody else wrote, too.
  const auto info = files_.info_followed(path_);
  if (info.has_value() && info->size_bytes == size_before + line.size() + 1) {
    learn_line(size_before, line);
    seen_ = *info;
  }
  crash_point("after_line");
  return {};
}

}  // namespace evalcar::publish
