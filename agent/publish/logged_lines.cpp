#include "agent/publish/logged_lines.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "agent/publish/foreign_json.h"

namespace evalcar::publish {
namespace {

constexpr LineReader::Limits kLimits{.file_bytes = std::uint64_t{1} << 30U,
                                     .line_bytes = std::size_t{16} << 20U};
/// Thousands of lines: in so much of what others wrote, one of ours is found.
constexpr std::uint64_t kEndBytes = std::uint64_t{4} << 20U;

std::string path_in(const std::string& dir) { return join_path(dir, "metrics.jsonl"); }

std::optional<LoggedLine> ours(std::string text) {
  LoggedLine line;
  line.json = parse_shallow(text);
  const auto seq = line.json.is_object() ? integer_of(line.json, "seq") : std::nullopt;
  if (!seq.has_value()) return std::nullopt;
  line.seq = *seq;
  line.text = std::move(text);
  return line;
}

/// The last bytes of the file.
Result<std::string> end_of(const FileSystem& files, const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(const auto file, files.open_readable(path));
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, file->info());
  std::string text(static_cast<std::size_t>(std::min(kEndBytes, info.size_bytes)), '\0');
  EVALCAR_RETURN_IF_ERROR(file->read_exactly_at(info.size_bytes - text.size(),
                                                std::as_writable_bytes(std::span(text)), path));
  return text;
}

/// The last whole line of ours in it. The first one may lack its beginning: then it is no JSON.
std::optional<LoggedLine> newest_in(const std::string& text) {
  std::size_t end = text.rfind('\n');
  while (end != std::string::npos) {
    const std::size_t before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
    const std::size_t start = before == std::string::npos ? 0 : before + 1;
    if (auto line = ours(text.substr(start, end - start))) return line;
    end = before;
  }
  return std::nullopt;
}

}  // namespace

Result<LoggedLines> LoggedLines::open(const FileSystem& files, const std::string& dir) {
  LoggedLines lines;
  auto reader = LineReader::open(files, path_in(dir), kLimits);
  if (!reader.has_value() && reader.error().code != ErrorCode::kNotFound) return reader.error();
  if (reader.has_value()) lines.reader_ = std::move(*reader);
  return lines;
}

Result<bool> LoggedLines::step(std::optional<LoggedLine>& found) {
  if (!reader_.has_value()) return false;
  EVALCAR_ASSIGN_OR_RETURN(const LineReader::Found next, reader_->next());
  if (next == LineReader::Found::kLine) found = ours(reader_->take_line());
  return next != LineReader::Found::kEnd;
}

std::int64_t published_generation(const FileSystem& files, const std::string& dir,
                                  const std::string& stem) {
  const auto line = newest_in(end_of(files, path_in(dir)).value_or(""));
  const std::string name = line.has_value() ? text_of(line->json, "run") : "";
  if (!name.starts_with(stem + "-")) return 0;
  std::int64_t generation = 0;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + stem.size() + 1, end, generation);
  return parsed.ec == std::errc{} && parsed.ptr == end && generation > 0 ? generation : 0;
}

}  // namespace evalcar::publish
