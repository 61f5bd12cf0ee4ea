// TensorBoard's event file: TFRecord frames around Event messages
// (tensorflow/core/util/event.proto, tensorflow/core/lib/io/record_writer.h), without TensorFlow or
// protobuf.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace evalcar::publish {

/// CRC-32C (Castagnoli), as in RFC 3720.
std::uint32_t crc32c(std::string_view bytes);

/// One TFRecord: length (8 bytes, little-endian), masked CRC of it, data, masked CRC of the data.
std::string record(std::string_view data);

/// The Event message of one step: all values as scalars, then the texts (Markdown, as the text
/// plugin shows it), by tag; `wall_time_s` since the epoch.
std::string step_event(double wall_time_s, std::int64_t step,
                       const std::map<std::string, double>& values,
                       const std::map<std::string, std::string>& texts = {});

/// The data of all whole records from the start, and how many bytes they take; what follows is
/// torn, or not a record.
struct Records {
  std::vector<std::string> data;
  std::size_t whole_bytes = 0;
};
Records read_records(std::string_view content);

/// How long the record is that begins so; absent if none does.
std::optional<std::uint64_t> record_bytes(std::string_view begin);

struct TimedEvent {
  double wall_time_s = 0;
  std::string event;
};

/// The event that every file starts with: it tells the version of the format.
std::string version_event(double wall_time_s);

}  // namespace evalcar::publish
