#include "agent/publish/event_file.h"

#include <array>
#include <bit>
#include <limits>

namespace evalcar::publish {
namespace {

// Of a record: its length and the check of that, and the check of its data.
constexpr std::size_t kHead = 12;
constexpr std::size_t kTail = 4;

std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 1U) != 0 ? (crc >> 1U) ^ 0x82F63B78U : crc >> 1U;  // the polynomial, reflected
    }
    table[i] = crc;
  }
  return table;
}

/// TFRecord stores CRCs rotated and moved, so that a CRC of data that holds a CRC stays useful.
std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8U; }

template <typename T>
void put_little_endian(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>((value >> (8 * i)) & 0xFFU));
  }
}

template <typename T>
T get_little_endian(std::string_view bytes) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

// Protocol buffers: a field is (number << 3 | wire type) followed by the value.
void put_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80U) {
    out.push_back(static_cast<char>((value & 0x7FU) | 0x80U));
    value >>= 7U;
  }
  out.push_back(static_cast<char>(value));
}
void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
  put_varint(out, (field << 3U) | 2U);
  put_varint(out, bytes.size());
  out.append(bytes);
}
void put_double(std::string& out, unsigned field, double value) {
  put_varint(out, (field << 3U) | 1U);
  put_little_endian(out, std::bit_cast<std::uint64_t>(value));
}
void put_float(std::string& out, unsigned field, float value) {
  put_varint(out, (field << 3U) | 5U);
  put_little_endian(out, std::bit_cast<std::uint32_t>(value));
}

void put_integer(std::string& out, unsigned field, std::uint64_t value) {
  put_varint(out, field << 3U);
  put_varint(out, value);
}

/// Summary.Value{tag = 1, tensor = 8, metadata = 9}: one string for the plugin "text".
std::string text_value(const std::string& tag, const std::string& text) {
  constexpr std::uint64_t kStrings = 7;          // DataType.DT_STRING
  constexpr std::uint64_t kDataClassTensor = 2;  // DataClass.DATA_CLASS_TENSOR
  std::string size;                              // TensorShapeProto.Dim{size = 1}
  put_integer(size, 1, 1);
  std::string shape;  // TensorShapeProto{dim = 2}
  put_bytes(shape, 2, size);
  std::string tensor;  // TensorProto{dtype = 1, tensor_shape = 2, string_val = 8}
  put_integer(tensor, 1, kStrings);
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, text);
  std::string plugin;  // SummaryMetadata.PluginData{plugin_name = 1}
  put_bytes(plugin, 1, "text");
  std::string metadata;  // SummaryMetadata{plugin_data = 1, data_class = 4}
  put_bytes(metadata, 1, plugin);
  put_integer(metadata, 4, kDataClassTensor);
  std::string value;
  put_bytes(value, 1, tag);
  put_bytes(value, 8, tensor);
  put_bytes(value, 9, metadata);
  return value;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static const std::array<std::uint32_t, 256> kTable = make_crc_table();
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) {
    crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFFU] ^ (crc >> 8U);
  }
  return crc ^ 0xFFFFFFFFU;
}

std::string record(std::string_view data) {
  std::string out;
  put_little_endian(out, std::uint64_t{data.size()});
  put_little_endian(out, masked(crc32c(out)));
  out.append(data);
  put_little_endian(out, masked(crc32c(data)));
  return out;
}

/// Event{wall_time = 1, file_version = 3}
std::string version_event(double wall_time_s) {
  std::string event;
  put_double(event, 1, wall_time_s);
  put_bytes(event, 3, "brain.Event:2");
  return event;
}

std::string step_event(double wall_time_s, std::int64_t step,
                       const std::map<std::string, double>& values,
                       const std::map<std::string, std::string>& texts) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    std::string value;  // Summary.Value{tag = 1, simple_value = 2}
    put_bytes(value, 1, tag);
    put_float(value, 2, static_cast<float>(number));
    put_bytes(summary, 1, value);
  }
  for (const auto& [tag, text] : texts) put_bytes(summary, 1, text_value(tag, text));
  std::string event;  // Event{wall_time = 1, step = 2, summary = 5}
  put_double(event, 1, wall_time_s);
  put_varint(event, 2U << 3U);
  put_varint(event, static_cast<std::uint64_t>(step));
  put_bytes(event, 5, summary);
  return event;
}

std::optional<std::uint64_t> record_bytes(std::string_view begin) {
  if (begin.size() < kHead) return std::nullopt;
  const auto length = get_little_endian<std::uint64_t>(begin);
  const auto check = get_little_endian<std::uint32_t>(begin.substr(8));
  if (check != masked(crc32c(begin.substr(0, 8)))) return std::nullopt;
  if (length > std::numeric_limits<std::uint64_t>::max() - kHead - kTail) return std::nullopt;
  return kHead + length + kTail;
}

Records read_records(std::string_view content) {
  Records records;
  while (content.size() - records.whole_bytes >= kHead + kTail) {
    const std::string_view rest = content.substr(records.whole_bytes);
    const auto bytes = record_bytes(rest);
    if (!bytes.has_value() || *bytes > rest.size()) break;
    const std::string_view data = rest.substr(kHead, *bytes - kHead - kTail);
    if (get_little_endian<std::uint32_t>(rest.substr(*bytes - kTail)) != masked(crc32c(data)))
      break;
    records.data.emplace_back(data);
    records.whole_bytes += *bytes;
  }
  return records;
}

}  // namespace evalcar::publish
