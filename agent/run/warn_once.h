// A trouble that lasts is told of when it changes, not at every turn.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace evalcar::run {

/// Logs `text` unless it is "" or what `known` says already, which becomes it.
inline void warn_once(std::string& known, const std::string& text) {
  if (text != known && !text.empty()) spdlog::warn("{}", text);
  known = text;
}

}  // namespace evalcar::run
