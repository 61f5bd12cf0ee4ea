// The same complaint over and over must neither fill a disk nor hide the others.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "store/base/clock.h"

namespace evalcar::agent_service {

/// Not thread-safe. Remembers a bounded number of texts.
class RepeatLimiter {
 public:
  struct Options {
    std::size_t at_once = 5;          ///< so often within a window a text is said
    std::chrono::seconds window{60};  ///< then not again before its end
    std::size_t remembered = 256;     ///< texts; the one whose window is the oldest is forgotten
  };
  RepeatLimiter() : RepeatLimiter(Options()) {}
  explicit RepeatLimiter(Options options) : options_(options) {}

  /// Absent: not to be said now. Else how often the text was kept back since it was last said.
  std::optional<std::size_t> admit(std::string_view text, MonotonicTime now);

 private:
  struct Window {
    MonotonicTime began{};
    std::size_t said = 0;
    std::size_t kept_back = 0;
  };
  void make_room(MonotonicTime now);

  Options options_;
  std::map<std::string, Window, std::less<>> windows_;
};

}  // namespace evalcar::agent_service
