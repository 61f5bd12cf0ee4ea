// A data set of JSON lines: the places of the lines are noted when it is opened, each line is
// parsed when it is asked for.
#include <algorithm>
#include <array>
#include <cstddef>

#include "evaluator/tasks/data_set.h"
#include "store/base/hash.h"

namespace evalcar::tasks {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20U;
constexpr std::uint64_t kMostLineBytes = std::uint64_t{64} << 20U;
constexpr std::size_t kLinesForColumns = 100;

struct Line {
  std::uint32_t file = 0;
  std::int64_t number = 0;  ///< from 1
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
};

bool is_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; });
}

std::string_view json_type(const Value& value) {
  if (value.is_string()) return "string";
  if (value.is_number_integer()) return "integer";
  if (value.is_number()) return "number";
  if (value.is_boolean()) return "boolean";
  if (value.is_array()) return "list";
  if (value.is_object()) return "object";
  return "null";
}

class JsonLines final : public DataSet {
 public:
  JsonLines(const FileSystem& files, std::vector<std::string> paths)
      : files_(files), paths_(std::move(paths)) {}

  Status open() {
    for (std::size_t i = 0; i < paths_.size(); ++i) EVALCAR_RETURN_IF_ERROR(index_file(i));
    for (std::size_t i = 0; i < std::min(lines_.size(), kLinesForColumns); ++i) {
      EVALCAR_ASSIGN_OR_RETURN(const Value document, row(static_cast<std::int64_t>(i)));
      for (const auto& item : document.items()) {
        const std::string& key = item.key();
        const Value& value = item.value();
        const auto same = [&](const Column& c) { return c.name == key; };
        if (std::none_of(columns_.begin(), columns_.end(), same)) {
          columns_.push_back({.name = key, .type = std::string(json_type(value))});
        }
      }
    }
    return {};
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(lines_.size()); }
  const std::vector<Column>& columns() const override { return columns_; }
  const std::string& fingerprint() const override { return fingerprint_; }

  Result<Value> row(std::int64_t doc_id) const override {
    if (doc_id < 0 || doc_id >= size()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "document " + std::to_string(doc_id) + " of " + std::to_string(size()));
    }
    const Line& line = lines_[static_cast<std::size_t>(doc_id)];
    std::string text(line.size_bytes, '\0');
    EVALCAR_RETURN_IF_ERROR(opened_[line.file]->read_exactly_at(
        line.offset, std::as_writable_bytes(std::span(text.data(), text.size())),
        paths_[line.file]));
    auto value = parse_json(text);
    if (!value) return with_context(value.error(), place(line));
    if (!value->is_object()) {
      return make_error(
          ErrorCode::kCorruption,
          place(line) + ": is a JSON " + std::string(json_type(*value)) + ", expected an object");
    }
    return value;
  }

  Result<std::vector<std::string>> images(std::int64_t doc_id,
                                          std::string_view column) const override {
    EVALCAR_ASSIGN_OR_RETURN(const Value document, row(doc_id));
    std::vector<std::string> result;
    const auto found = document.find(std::string(column));
    if (found == document.end() || found->is_null()) return result;
    const Line& line = lines_[static_cast<std::size_t>(doc_id)];
    const Value list = found->is_array() ? *found : Value::array({*found});
    for (const Value& item : list) {
      const Value& name = item.is_object() && item.contains("path") ? item["path"] : item;
      if (!name.is_string()) {
        return make_error(ErrorCode::kCorruption,
                          place(line) + ": column \"" + std::string(column) + "\" holds a " +
                              std::string(json_type(item)) + ", expected the path of a picture");
      }
      auto bytes = read_named_image(files_, paths_[line.file], name.get_ref<const std::string&>());
      if (!bytes)
        return with_context(bytes.error(),
                            place(line) + ": column \"" + std::string(column) + "\"");
      result.push_back(std::move(*bytes));
    }
    return result;
  }

  Result<std::string> named_image(std::int64_t doc_id, std::string_view name) const override {
    const Line& line = lines_[static_cast<std::size_t>(doc_id)];
    return read_named_image(files_, paths_[line.file], name);
  }

  std::string place_of(std::int64_t doc_id) const override {
    if (doc_id < 0 || doc_id >= size()) return "no document";
    return place(lines_[static_cast<std::size_t>(doc_id)]);
  }

 private:
  std::string place(const Line& line) const {
    return paths_[line.file] + ":" + std::to_string(line.number);
  }

  Status index_file(std::size_t index) {
    const std::string& path = paths_[index];
    EVALCAR_ASSIGN_OR_RETURN(auto file, files_.open_readable(path));
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, file->info());
    std::vector<std::byte> block(kBlock);
    Sha256 hash;
    Line line{static_cast<std::uint32_t>(index), 1, 0, 0};
    bool blank = true;
    const auto finish = [&](std::uint64_t end) -> Status {
      line.size_bytes = end - line.offset;
      if (line.size_bytes > kMostLineBytes) {
        return make_error(ErrorCode::kCorruption,
                          place(line) + ": a line of " + std::to_string(line.size_bytes) +
                              " bytes; expected at most " + std::to_string(kMostLineBytes));
      }
      if (!blank) lines_.push_back(line);
      line.offset = end + 1;
      ++line.number;
      blank = true;
      return {};
    };
    std::uint64_t offset = 0;
    while (offset < info.size_bytes) {
      const std::size_t wanted =
          static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, info.size_bytes - offset));
      EVALCAR_RETURN_IF_ERROR(file->read_exactly_at(offset, std::span(block.data(), wanted), path));
      hash.update(std::span<const std::byte>(block.data(), wanted));
      for (std::size_t i = 0; i < wanted; ++i) {
        const char c = static_cast<char>(block[i]);
        if (c == '\n') {
          EVALCAR_RETURN_IF_ERROR(finish(offset + i));
        } else if (blank && !is_blank(std::string_view(&c, 1))) {
          blank = false;
        }
      }
      offset += wanted;
    }
    EVALCAR_RETURN_IF_ERROR(finish(info.size_bytes));
    fingerprint_ += base_name(path) + " " + std::to_string(info.size_bytes) + " " +
                    to_hex(hash.finish()) + "\n";
    opened_.push_back(std::move(file));
    return {};
  }

  const FileSystem& files_;
  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<ReadableFile>> opened_;
  std::vector<Line> lines_;
  std::vector<Column> columns_;
  std::string fingerprint_;
};

Result<std::string> decode_base64(std::string_view text) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    std::uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<std::uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<std::uint32_t>(c - 'a' + 26);
    } else if (c >= '0' && c <= '9') {
      value = static_cast<std::uint32_t>(c - '0' + 52);
    } else if (c == '+') {
      value = 62;
    } else if (c == '/') {
      value = 63;
    } else if (c == '=') {
      break;
    } else {
      return make_error(ErrorCode::kCorruption, "a data: URL with a character that is not base64");
    }
    bits = (bits << 6U) | value;
    held += 6;
    if (held >= 8) {
      held -= 8;
      out.push_back(static_cast<char>((bits >> static_cast<unsigned>(held)) & 0xFFU));
    }
  }
  return out;
}

}  // namespace

Result<std::string> read_named_image(const FileSystem& files, const std::string& data_file,
                                     std::string_view name) {
  if (name.starts_with("data:")) {
    const std::size_t comma = name.find(";base64,");
    if (comma == std::string_view::npos)
      return make_error(ErrorCode::kUnsupported, "a data: URL that is not base64");
    return decode_base64(name.substr(comma + 8));
  }
  const std::string path =
      name.starts_with("/") ? std::string(name) : join_path(parent_path(data_file), name);
  return read_file(files, path, kMostImageBytes);
}

Result<std::unique_ptr<DataSet>> open_json_lines(const FileSystem& files,
                                                 const std::vector<std::string>& paths) {
  auto data = std::make_unique<JsonLines>(files, paths);
  EVALCAR_RETURN_IF_ERROR(data->open());
  return std::unique_ptr<DataSet>(std::move(data));
}

Result<std::unique_ptr<DataSet>> open_data_set(const FileSystem& files,
                                               const std::vector<std::string>& paths) {
  const auto is_parquet = [](const std::string& path) { return path.ends_with(".parquet"); };
  if (std::all_of(paths.begin(), paths.end(), is_parquet)) return open_parquet(files, paths);
  if (std::none_of(paths.begin(), paths.end(), is_parquet)) return open_json_lines(files, paths);
  return make_error(ErrorCode::kUnsupported, paths.front() + " and " + paths.back() +
                                                 ": one split in Parquet and JSON lines at once");
}

}  // namespace evalcar::tasks
