// Values with units, as people write them in the configuration: "10s", "8GiB".
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "store/base/result.h"

namespace evalcar::config {

using Duration = std::chrono::milliseconds;

/// "500ms", "10s", "2min", "1.5h", "3d"; "0" needs no unit. kInvalidArgument names what was seen.
Result<Duration> parse_duration(std::string_view text);
/// The shortest spelling that parses back to the same value: "90s", "2min", "1h".
std::string format_duration(Duration duration);

/// "8GiB", "500MB", "4096B", "1.5TiB"; "0" needs no unit. Decimal (kB) and binary (KiB) prefixes.
Result<std::uint64_t> parse_bytes(std::string_view text);
/// For people: "1.2 GiB".
std::string format_bytes(std::uint64_t bytes);

}  // namespace evalcar::config
