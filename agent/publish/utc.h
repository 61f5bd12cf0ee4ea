// The way back from the texts of format_utc().
#pragma once

#include <charconv>
#include <ctime>
#include <optional>
#include <string_view>

#include "store/base/clock.h"

namespace evalcar::publish {

/// The time of a text that format_utc() made; absent for any other text, be it near to one.
inline std::optional<WallTime> read_utc(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00.000000Z";
  if (text.size() != kForm.size()) return std::nullopt;
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == '0' ? !digit : text[i] != kForm[i]) return std::nullopt;
  }
  const auto number = [text](std::size_t from, std::size_t size) {
    int value = 0;
    std::from_chars(text.data() + from, text.data() + from + size, value);
    return value;
  };
  std::tm parts{};
  parts.tm_year = number(0, 4) - 1900;
  parts.tm_mon = number(5, 2) - 1;
  parts.tm_mday = number(8, 2);
  parts.tm_hour = number(11, 2);
  parts.tm_min = number(14, 2);
  parts.tm_sec = number(17, 2);
  std::tm same = parts;
  const std::time_t seconds = timegm(&same);  // which makes 1 March of 29 February 2025
  const bool is_date = same.tm_year == parts.tm_year && same.tm_mon == parts.tm_mon &&
                       same.tm_mday == parts.tm_mday && same.tm_hour == parts.tm_hour &&
                       same.tm_min == parts.tm_min && same.tm_sec == parts.tm_sec;
  if (!is_date) return std::nullopt;
  return WallTime{std::chrono::seconds{seconds} + std::chrono::microseconds{number(20, 6)}};
}

/// The same; the epoch for any other text.
inline WallTime parse_utc(std::string_view text) { return read_utc(text).value_or(WallTime{}); }

}  // namespace evalcar::publish
