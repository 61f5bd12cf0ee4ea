// The way back from the texts of format_utc().
#pragma once

#include <cstdio>
#include <ctime>
#include <string>

#include "store/base/clock.h"

namespace evalcar::publish {

/// The time of a text that format_utc() made; the epoch for any other text.
inline WallTime parse_utc(const std::string& text) {
  std::tm parts{};
  int micros = 0;
  if (std::sscanf(text.c_str(), "%d-%d-%dT%d:%d:%d.%6dZ", &parts.tm_year, &parts.tm_mon,
                  &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &micros) != 7) {
    return WallTime{};
  }
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return WallTime{std::chrono::seconds{timegm(&parts)} + std::chrono::microseconds{micros}};
}

}  // namespace evalcar::publish
