#include "agent/publish/metrics_log.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "store/base/crash_point.h"

namespace evalcar::publish {
namespace {
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30U;

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

Status MetricsLog::learn(const std::string& content) {
  ++looks_;
  last_seq_ = 0;
  lines_.clear();
  std::size_t start = 0;
  while (true) {
    const std::size_t end = content.find('\n', start);
    if (end == std::string::npos) return {};
    learn_line(start, content.substr(start, end - start));
    start = end + 1;
  }
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

Status MetricsLog::refresh() {
  const auto info = files_.info_followed(path_);
  if (!info.has_value()) {
    if (info.error().code != ErrorCode::kNotFound) return info.error();
    seen_.reset();
    return learn("");
  }
  if (seen_.has_value() && seen_->same_content_identity(*info) && !suspect_) return {};
  seen_.reset();
  EVALCAR_ASSIGN_OR_RETURN(std::string content, read_file(files_, path_, kMaxBytes));
  const std::size_t newline = content.rfind('\n');
  const std::size_t whole = newline == std::string::npos ? 0 : newline + 1;
  if (whole != content.size()) {
    content.resize(whole);
    EVALCAR_RETURN_IF_ERROR(ask_fence());
    EVALCAR_RETURN_IF_ERROR(files_.truncate(path_, whole));
    EVALCAR_ASSIGN_OR_RETURN(const auto file, files_.open_appendable(path_));
    EVALCAR_RETURN_IF_ERROR(file->sync());
    EVALCAR_RETURN_IF_ERROR(file->close());
  }
  if (suspect_) {
    EVALCAR_RETURN_IF_ERROR(ask_fence());
    EVALCAR_RETURN_IF_ERROR(write_file_atomically(files_, path_, content));
    suspect_ = false;
  }
  EVALCAR_RETURN_IF_ERROR(learn(content));
  EVALCAR_ASSIGN_OR_RETURN(seen_, files_.info_followed(path_));
  return {};
}

Status MetricsLog::restore(std::vector<std::pair<std::int64_t, std::string>> lines) {
  if (lines.empty()) return {};
  EVALCAR_RETURN_IF_ERROR(refresh());
  std::sort(lines.begin(), lines.end());
  if (lines.front().first < last_seq_) return restore_among(std::move(lines));
  for (const auto& [seq, line] : lines) EVALCAR_RETURN_IF_ERROR(append(line));
  return refresh();
}

Status MetricsLog::restore_among(std::vector<std::pair<std::int64_t, std::string>> lines) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string content, read_file(files_, path_, kMaxBytes));
  std::int64_t seq = 0;  // what is no line of ours stays behind the one before it
  for (std::size_t start = 0, end = 0; (end = content.find('\n', start)) != std::string::npos;
       start = end + 1) {
    const std::string line = content.substr(start, end - start);
    seq = std::max(seq, seq_of(line).value_or(0));
    lines.emplace_back(seq, line);
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string whole;
  for (const auto& [at, line] : lines) whole += line + "\n";
  seen_.reset();
  EVALCAR_RETURN_IF_ERROR(ask_fence());
  EVALCAR_RETURN_IF_ERROR(write_file_atomically(files_, path_, whole));
  return refresh();
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
