// TensorBoard's event file: TFRecord frames around Event messages
// (tensorflow/core/util/event.proto, tensorflow/core/lib/io/record_writer.h), without TensorFlow or
// protobuf.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

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

struct TimedEvent {
  double wall_time_s = 0;
  std::string event;
};

/// Appends those of `events` that are not there, in their order and in one write, synced (the file
/// is made with its folder and first record if missing). A torn tail is cut first.
Status append_events(FileSystem& files, const std::string& path,
                     const std::vector<TimedEvent>& events);
/// One of them.
Status append_event(FileSystem& files, const std::string& path, double wall_time_s,
                    const std::string& event);

}  // namespace evalcar::publish
