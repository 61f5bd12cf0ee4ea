#include "agent/publish/log_rewrite.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "agent/publish/log_limits.h"
#include "agent/publish/metrics_log.h"

namespace evalcar::publish {
namespace {

/// As those of write_file_atomically, so that one that a kill leaves is removed like those; apart
/// from its own.
std::string temporary_beside(const std::string& path) {
  static std::atomic<std::uint64_t> counter{2'000'000'000};
  return join_path(parent_path(path), "." + base_name(path) + ".tmp." + std::to_string(::getpid()) +
                                          "." + std::to_string(counter.fetch_add(1)));
}

}  // namespace

Result<LogRewrite> LogRewrite::begin(FileSystem& files, std::string path, Lines among) {
  // Lines of others stay, too, whatever their length.
  EVALCAR_ASSIGN_OR_RETURN(
      LineReader source,
      LineReader::open(files, path, {.file_bytes = kMaxLogBytes, .line_bytes = kMaxLogBytes}));
  return LogRewrite(files, std::move(path), std::move(among), std::move(source));
}

LogRewrite::LogRewrite(FileSystem& files, std::string path, Lines among, LineReader source)
    : files_(&files),
      path_(std::move(path)),
      temporary_(temporary_beside(path_)),
      among_(std::move(among)),
      source_(std::move(source)) {}

LogRewrite::LogRewrite(LogRewrite&& other) noexcept
    : files_(other.files_),
      path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      among_(std::move(other.among_)),
      next_(other.next_),
      source_(std::move(other.source_)),
      seq_(other.seq_),
      text_(std::move(other.text_)),
      written_(std::exchange(other.written_, 0)) {}

LogRewrite::~LogRewrite() {
  if (written_ > 0) (void)files_->remove_file(temporary_);
}

Result<LogRewrite::Step> LogRewrite::step() {
  EVALCAR_ASSIGN_OR_RETURN(const LineReader::Found found, source_.next());
  if (found == LineReader::Found::kLine) {
    const std::string line = source_.take_line();
    seq_ = std::max(seq_, seq_of(line).value_or(0));
    for (; next_ < among_.size() && among_[next_].first <= seq_; ++next_) {
      text_ += among_[next_].second + "\n";
    }
    text_ += line + "\n";
  } else if (found == LineReader::Found::kEnd) {
    for (; next_ < among_.size(); ++next_) text_ += among_[next_].second + "\n";
    return Step::kLast;
  }
  if (text_.size() >= LineReader::kPieceBytes) {
    EVALCAR_RETURN_IF_ERROR(write_out());
    return Step::kPiece;
  }
  const bool more_read = found == LineReader::Found::kPiece && source_.bytes_left() > 0;
  return more_read ? Step::kPiece : Step::kLine;
}

/// Synced each time: what a sync of a file that was opened anew says of earlier writes depends on
/// the file system.
Status LogRewrite::write_out() {
  if (written_ > 0) {
    const auto info = files_->info(temporary_);
    if (!info.has_value() || info->size_bytes != written_) {
      return make_error(ErrorCode::kUnavailable, temporary_ + ": was changed by somebody else");
    }
  }
  EVALCAR_ASSIGN_OR_RETURN(const auto file, written_ == 0 ? files_->create(temporary_, 0644)
                                                          : files_->open_appendable(temporary_));
  const std::uint64_t size = text_.size();
  written_ += size;
  EVALCAR_RETURN_IF_ERROR(file->append(text_));
  EVALCAR_RETURN_IF_ERROR(file->sync());
  text_.clear();
  return file->close();
}

Status LogRewrite::replace() {
  if (written_ == 0) return write_file_atomically(*files_, path_, text_);
  if (!text_.empty()) EVALCAR_RETURN_IF_ERROR(write_out());
  EVALCAR_RETURN_IF_ERROR(files_->rename(temporary_, path_));
  written_ = 0;
  return files_->sync_directory(parent_path(path_));
}

}  // namespace evalcar::publish
