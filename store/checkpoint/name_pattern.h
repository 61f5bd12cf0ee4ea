// The regular expressions of `rank_pattern` and `alpha_pattern`, matched without backtracking: time
// is at most the number of the pattern's states times the name's length, whatever a file says.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/result.h"

namespace evalcar::checkpoint {

/// A pattern, matched as PEFT does: `re.match(r"(.*\.)?(PATTERN)$", name)`, so at the start of the
/// name or behind a dot, up to its end. Understood are literals, `.`, escapes (`\.`, `\d`, `\w`,
/// `\s` and their opposites), classes, groups, `|`, `* + ? {m,n}` (also lazy) and the anchors.
class NamePattern {
 public:
  /// kUnsupported with the place for look-around, back references, flags and what else Python
  /// knows, and for a pattern that needs more than 2,048 states.
  static Result<NamePattern> compile(std::string_view pattern);

  /// Thread-safe.
  bool matches(std::string_view name) const;
  /// What a match may cost, per byte of a name; 0 for a plain name.
  std::size_t states() const { return states_.size(); }

 private:
  friend class PatternCompiler;
  enum class Step : std::uint8_t { kBytes, kSplit, kStart, kEnd, kMatch };
  struct State {
    Step step = Step::kMatch;
    std::uint32_t next = 0;
    std::uint32_t other = 0;      // of kSplit
    std::bitset<256> bytes = {};  // of kBytes
  };
  /// The states at one place of a name.
  struct Front {
    std::vector<std::uint32_t> states;
    std::vector<std::size_t> seen_at;  // per state: the last place where it was entered, + 1
  };
  bool matches_plain(std::string_view name) const;
  void enter(std::uint32_t state, std::size_t place, std::size_t end, Front& front) const;

  std::vector<State> states_;
  std::uint32_t first_ = 0;
  // A pattern of letters, digits, dots and the like, as nearly all are, needs no states:
  std::string plain_;      // '\n' stands for any byte but that
  bool at_start_ = false;  // it began with "^"
};

}  // namespace evalcar::checkpoint
