#include "store/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <tuple>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

/// The one key of a header that is no tensor.
constexpr std::string_view kMetadata = "__metadata__";
/// Of the header's text, behind its length.
constexpr std::uint64_t kHeaderOffset = 8;

/// Collects tensors from {"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},…,
/// "__metadata__":{"k":"v"}}.
class HeaderVisitor final : public JsonVisitor {
 public:
  HeaderVisitor(SafetensorsFile& file, std::size_t header_bytes)
      : file_(file), max_dimensions_(64'000 + header_bytes / 8) {}

  std::string open(const JsonPath& path, bool is_array) override {
    if (path.empty()) return is_array ? "the header is not an object" : "";
    if (path.size() == 1 && !is_array) {
      if (path[0] == kMetadata) return {};
      if (file_.tensors.size() == kMaxSafetensorsTensors) {
        return "more than " + std::to_string(kMaxSafetensorsTensors) + " tensors";
      }
      begin_tensor(path[0]);
      return {};
    }
    const bool is_list = path.size() == 2 && path[0] != kMetadata && is_array &&
                         (path[1] == "shape" || path[1] == "data_offsets");
    if (!is_list) return "unexpected " + std::string(is_array ? "array" : "object") + at(path);
    (path[1] == "shape" ? has_shape_ : has_offsets_) = true;
    return {};
  }

  std::string scalar(const JsonPath& path, const JsonScalar& value) override {
    if (path.size() == 2 && path[0] == kMetadata) {
      if (value.kind != JsonScalar::Kind::kString) return "metadata is not text" + at(path);
      if (file_.metadata.size() == kMaxMetadata) return "more metadata than anybody writes";
      file_.metadata.emplace(path[1], value.text);
      return {};
    }
    if (path.size() == 2 && path[1] == "dtype") return set_dtype(path, value);
    if (path.size() == 3 && (path[1] == "shape" || path[1] == "data_offsets")) {
      return add_number(path, value);
    }
    return "unexpected value" + at(path);
  }

  std::string close(const JsonPath& path) override {
    if (path.size() != 1 || path[0] == kMetadata) return {};
    SafetensorsTensor& tensor = file_.tensors.back();
    if (!has_dtype_ || !has_shape_ || !has_offsets_) {
      return "dtype, shape or data_offsets is missing" + at(path);
    }
    if (packs_two(tensor.dtype)) {
      if (tensor.shape.empty() || tensor.shape.back() % 2 != 0) {
        return "shape " + shape_text(tensor.shape) +
               " of a type of half a byte, expected an even last dimension" + at(path);
      }
      tensor.shape.back() /= 2;
    }
    if (offsets_.size() != 2) return "data_offsets needs two numbers" + at(path);
    tensor.begin = offsets_[0];
    tensor.end = offsets_[1];
    if (tensor.end < tensor.begin) return "data_offsets are reversed" + at(path);
    const auto elements = checked_elements(tensor.shape);
    const auto bytes = elements ? checked_mul(*elements, dtype_size(tensor.dtype)) : std::nullopt;
    if (!bytes) return "shape " + shape_text(tensor.shape) + " is too large" + at(path);
    if (*bytes != tensor.end - tensor.begin) {
      return "data_offsets span " + std::to_string(tensor.end - tensor.begin) +
             " bytes, expected " + std::to_string(*bytes) + " for shape " +
             shape_text(tensor.shape) + at(path);
    }
    return {};
  }

 private:
  static constexpr std::size_t kMaxMetadata = 10'000;

  static std::string at(const JsonPath& path) {
    std::string text = ", at ";
    for (std::size_t i = 0; i < path.size(); ++i) text += (i > 0 ? "." : "") + quote_name(path[i]);
    return text;
  }
  void begin_tensor(const std::string& name) {
    file_.tensors.emplace_back().name = name;
    has_dtype_ = has_shape_ = has_offsets_ = false;
    offsets_.clear();
  }
  std::string set_dtype(const JsonPath& path, const JsonScalar& value) {
    if (value.kind != JsonScalar::Kind::kString) return "dtype is not text" + at(path);
    const auto dtype = dtype_from_safetensors(value.text);
    if (!dtype) return "unknown dtype " + quote_name(value.text) + at(path);
    file_.tensors.back().dtype = *dtype;
    has_dtype_ = true;
    return {};
  }
  std::string add_number(const JsonPath& path, const JsonScalar& value) {
    if (value.kind != JsonScalar::Kind::kUnsigned ||
        value.number > static_cast<std::uint64_t>(INT64_MAX)) {
      return "expected an integer from 0 to 2^63-1" + at(path);
    }
    if (path[1] == "data_offsets") {
      if (offsets_.size() == 2) return "data_offsets needs two numbers" + at(path);
      offsets_.push_back(value.number);
      return {};
    }
    auto& shape = file_.tensors.back().shape;
    if (shape.size() == kMaxDimensions || ++dimensions_ > max_dimensions_) {
      return "too many dimensions" + at(path);
    }
    shape.push_back(static_cast<std::int64_t>(value.number));
    return {};
  }

  SafetensorsFile& file_;
  std::size_t max_dimensions_;  // of all tensors
  std::size_t dimensions_ = 0;
  std::vector<std::uint64_t> offsets_;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
};

/// The tensors must follow each other from the first byte behind the header on.
Status check_file_tiling(const SafetensorsFile& file, std::string_view where) {
  std::uint64_t position = 0;
  for (const SafetensorsTensor& tensor : file.tensors) {
    if (tensor.begin != position) {
      // The header says what it likes: their sum may pass 2^64.
      const auto begin = checked_add(file.data_offset, tensor.begin);
      return make_error(
          ErrorCode::kCorruption,
          std::string(where) + ": tensor " + quote_name(tensor.name) + " begins at byte " +
              (begin ? std::to_string(*begin) : "2^64 or later") + ", expected " +
              std::to_string(file.data_offset + position) +
              (tensor.begin < position ? " (it overlaps another tensor)" : " (a hole before it)"));
    }
    position = tensor.end;
  }
  return {};
}

class IndexVisitor final : public JsonVisitor {
 public:
  // Of real ones each takes fifty bytes at least, most of them ninety.
  explicit IndexVisitor(std::size_t index_bytes) : max_entries_(1000 + index_bytes / 32) {}

  std::string open(const JsonPath& path, bool is_array) override {
    if (path.empty() && is_array) return "the index is not an object";
    if (!path.empty() && path[0] == "weight_map") {
      if (path.size() > 1 || is_array) return "weight_map is not an object of file names";
      seen_map = true;
    }
    return {};
  }
  std::string scalar(const JsonPath& path, const JsonScalar& value) override {
    if (path.empty() || path[0] != "weight_map") return {};
    if (path.size() != 2 || value.kind != JsonScalar::Kind::kString) {
      return "weight_map holds something that is not a file name";
    }
    if (!is_plain_name(value.text)) {
      return "weight_map names the file " + quote_name(value.text) +
             ", expected a plain name in the same folder";
    }
    if (map.size() == max_entries_) return "more entries than an index of that size can have";
    map.emplace(path[1], IndexedTensor{std::string(value.text), offset});
    return {};
  }
  std::string close(const JsonPath&) override { return {}; }

  std::map<std::string, IndexedTensor> map;
  bool seen_map = false;

 private:
  std::size_t max_entries_;
};

}  // namespace

Result<SafetensorsFile> parse_safetensors_header(std::string_view header, std::string_view where) {
  if (!header.starts_with('{')) {
    return make_error(ErrorCode::kCorruption,
                      std::string(where) + ": the header at byte 8 does not begin with '{'");
  }
  SafetensorsFile file;
  HeaderVisitor visitor(file, header.size());
  constexpr std::size_t kHeaderDepth = 3;
  EVALCAR_RETURN_IF_ERROR(scan_json(header, where, kHeaderDepth, visitor, kHeaderOffset));
  std::sort(file.tensors.begin(), file.tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  file.data_offset = kHeaderOffset + header.size();
  EVALCAR_RETURN_IF_ERROR(check_file_tiling(file, where));
  file.data_bytes = file.tensors.empty() ? 0 : file.tensors.back().end;
  return file;
}

Result<SafetensorsFile> read_safetensors(const ReadableFile& file, std::string_view where) {
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, file.info());
  const auto incomplete = [&](const std::string& why) {
    return make_error(ErrorCode::kUnavailable,
                      std::string(where) + ": " + why + " (still being written, or truncated)");
  };
  if (info.size_bytes < 8) {
    return incomplete(std::to_string(info.size_bytes) + " bytes, expected at least 8");
  }
  std::array<std::byte, 8> raw{};
  EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(0, raw, where));
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8U | std::to_integer<std::uint64_t>(raw[i]);
  if (length > kMaxSafetensorsHeader) {
    return make_error(ErrorCode::kCorruption,
                      std::string(where) + ": header length " + std::to_string(length) +
                          " at byte 0, expected at most " + std::to_string(kMaxSafetensorsHeader) +
                          " (not a safetensors file?)");
  }
  if (info.size_bytes - 8 < length) {
    return incomplete(std::to_string(info.size_bytes) + " bytes, expected 8 + a header of " +
                      std::to_string(length));
  }
  std::string header(length, '\0');
  EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(
      8, std::as_writable_bytes(std::span<char>(header.data(), header.size())), where));
  EVALCAR_ASSIGN_OR_RETURN(SafetensorsFile parsed, parse_safetensors_header(header, where));
  const std::uint64_t available = info.size_bytes - parsed.data_offset;
  if (parsed.data_bytes > available) {
    return incomplete("ends after " + std::to_string(available) + " bytes of data, expected " +
                      std::to_string(parsed.data_bytes));
  }
  if (parsed.data_bytes < available) {
    return make_error(ErrorCode::kCorruption,
                      std::string(where) + ": " + std::to_string(available - parsed.data_bytes) +
                          " bytes that belong to no tensor, from byte " +
                          std::to_string(parsed.data_offset + parsed.data_bytes) + " on");
  }
  return parsed;
}

Result<std::string> make_safetensors_header(const std::vector<SafetensorsTensor>& tensors,
                                            const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  try {
    if (!metadata.empty()) text += "\"__metadata__\":" + nlohmann::json(metadata).dump();
    for (const SafetensorsTensor& tensor : tensors) {
      const std::string_view dtype = safetensors_dtype_name(tensor.dtype);
      if (dtype.empty()) {
        return make_error(ErrorCode::kUnsupported, "tensor " + quote_name(tensor.name) +
                                                       ": safetensors has no dtype for " +
                                                       std::string(dtype_name(tensor.dtype)));
      }
      if (tensor.name == kMetadata) {
        return make_error(ErrorCode::kUnsupported,
                          "a tensor is named " + quote_name(tensor.name) +
                              ", which the safetensors format keeps for something else");
      }
      std::vector<std::uint64_t> shape(tensor.shape.begin(), tensor.shape.end());
      if (packs_two(tensor.dtype)) {
        if (shape.empty()) {
          return make_error(ErrorCode::kUnsupported, "tensor " + quote_name(tensor.name) +
                                                         ": safetensors has no scalar of " +
                                                         std::string(dtype_name(tensor.dtype)));
        }
        shape.back() *= 2;
      }
      if (text.size() > 1) text += ',';
      text += nlohmann::json(tensor.name).dump() + ":{\"dtype\":\"" + std::string(dtype) +
              "\",\"shape\":" + nlohmann::json(shape).dump() + ",\"data_offsets\":[" +
              std::to_string(tensor.begin) + ',' + std::to_string(tensor.end) + "]}";
    }
  } catch (const nlohmann::json::exception&) {
    return make_error(ErrorCode::kUnsupported, "a tensor's name is not valid UTF-8");
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxSafetensorsHeader) {
    return make_error(ErrorCode::kUnsupported, "the safetensors header would pass 100 MB");
  }
  std::string bytes;
  for (std::size_t i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(text.size() >> (8 * i) & 0xffU));
  }
  return bytes + text;
}

Result<std::map<std::string, IndexedTensor>> parse_safetensors_index(std::string_view text,
                                                                     std::string_view where) {
  IndexVisitor visitor(text.size());
  constexpr std::size_t kIndexDepth = 32;
  EVALCAR_RETURN_IF_ERROR(scan_json(text, where, kIndexDepth, visitor));
  if (!visitor.seen_map || visitor.map.empty()) {
    return make_error(ErrorCode::kCorruption, std::string(where) +
                                                  ": no weight_map with entries, up to byte " +
                                                  std::to_string(text.size()));
  }
  return std::move(visitor.map);
}

}  // namespace evalcar::checkpoint
