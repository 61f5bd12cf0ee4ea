#include "store/base/line_reader.h"

#include <algorithm>
#include <span>
#include <utility>

namespace evalcar {

Result<LineReader> LineReader::open(const FileSystem& files, std::string path, Limits limits) {
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, files.info_followed(path));
  if (info.size_bytes > limits.file_bytes) {
    return make_error(ErrorCode::kCorruption, path + ": " + std::to_string(info.size_bytes) +
                                                  " bytes, expected at most " +
                                                  std::to_string(limits.file_bytes));
  }
  return LineReader(files, std::move(path), limits, info);
}

Result<LineReader::Found> LineReader::next() {
  const std::size_t end = text_.find('\n', searched_);
  if (end == std::string::npos) return read_piece();
  const bool too_long = skipping_ || end - start_ > limits_.line_bytes;
  line_begin_ = std::exchange(lines_end_, offset_ - text_.size() + end + 1);
  if (!too_long) line_ = text_.substr(start_, end - start_);
  start_ = searched_ = end + 1;
  skipping_ = false;
  return too_long ? Found::kTooLong : Found::kLine;
}

Result<LineReader::Found> LineReader::read_piece() {
  if (offset_ == info_.size_bytes) return Found::kEnd;
  text_.erase(0, start_);
  if (skipping_ || text_.size() > limits_.line_bytes) {
    skipping_ = true;
    text_.clear();
  }
  start_ = 0;
  searched_ = text_.size();
  EVALCAR_ASSIGN_OR_RETURN(const auto file, files_->open_readable(path_));
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo now, file->info());
  if (now.inode != info_.inode || now.device != info_.device || now.size_bytes < info_.size_bytes) {
    return make_error(ErrorCode::kUnavailable,
                      path_ + ": changed while it was read, at byte " + std::to_string(offset_));
  }
  const auto size =
      static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, info_.size_bytes - offset_));
  text_.resize(searched_ + size);
  const std::span<char> piece = std::span<char>(text_).subspan(searched_);
  EVALCAR_RETURN_IF_ERROR(file->read_exactly_at(offset_, std::as_writable_bytes(piece), path_));
  offset_ += size;
  return Found::kPiece;
}

}  // namespace evalcar
