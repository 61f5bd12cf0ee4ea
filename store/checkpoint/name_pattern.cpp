// A name is followed through all states of its pattern at once.
#include "store/checkpoint/name_pattern.h"

#include <algorithm>

#include "store/checkpoint/pattern_compiler.h"

namespace evalcar::checkpoint {

Result<NamePattern> NamePattern::compile(std::string_view pattern) {
  NamePattern plain;
  std::string_view rest = pattern;
  if (rest.starts_with('^')) {
    plain.at_start_ = true;
    rest.remove_prefix(1);
  }
  while (!rest.empty()) {
    const char c = rest.front();
    const bool dot = rest.starts_with("\\.");
    if (!dot && c != '.' && c != '-' && !class_of('w')->test(static_cast<unsigned char>(c))) break;
    plain.plain_ += dot ? '.' : c == '.' ? '\n' : c;
    rest.remove_prefix(dot ? 2 : 1);
  }
  if (rest.empty() && !plain.plain_.empty()) return plain;
  return PatternCompiler(pattern).compile();
}

bool NamePattern::matches_plain(std::string_view name) const {
  if (name.size() < plain_.size()) return false;
  const std::string_view before = name.substr(0, name.size() - plain_.size());
  if (!before.empty() && (at_start_ || before.back() != '.')) return false;
  const std::string_view part = name.substr(before.size());
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (plain_[i] == '\n' ? part[i] == '\n' : part[i] != plain_[i]) return false;
  }
  return true;
}

/// Adds `state` and what it leads to without a byte. A stack, since a file controls the depth.
void NamePattern::enter(std::uint32_t state, std::size_t place, std::size_t end,
                        Front& front) const {
  std::vector<std::uint32_t> waiting = {state};
  while (!waiting.empty()) {
    const std::uint32_t id = waiting.back();
    waiting.pop_back();
    if (front.seen_at[id] == place + 1) continue;
    front.seen_at[id] = place + 1;
    front.states.push_back(id);
    const State& at = states_[id];
    if (at.step == Step::kSplit) {
      waiting.push_back(at.next);
      waiting.push_back(at.other);
    } else if ((at.step == Step::kStart && place == 0) || (at.step == Step::kEnd && place == end)) {
      waiting.push_back(at.next);
    }
  }
}

bool NamePattern::matches(std::string_view name) const {
  if (states_.empty()) return matches_plain(name);
  Front front{{}, std::vector<std::size_t>(states_.size(), 0)};
  std::vector<std::uint32_t> now;
  for (std::size_t i = 0;; ++i) {
    if (i == 0 || name[i - 1] == '.') enter(first_, i, name.size(), front);
    std::swap(now, front.states);
    front.states.clear();
    if (i == name.size()) break;
    const auto byte = static_cast<unsigned char>(name[i]);
    for (const std::uint32_t id : now) {
      if (states_[id].step == Step::kBytes && states_[id].bytes[byte]) {
        enter(states_[id].next, i + 1, name.size(), front);
      }
    }
  }
  return std::any_of(now.begin(), now.end(),
                     [&](std::uint32_t id) { return states_[id].step == Step::kMatch; });
}

}  // namespace evalcar::checkpoint
