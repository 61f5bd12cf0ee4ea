// Thompson's construction: a pattern becomes a graph of states, and a name is followed through all
// of them at once.
#include "store/checkpoint/name_pattern.h"

#include <algorithm>
#include <optional>

#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::size_t kMaxStates = 2048;
constexpr int kMaxGroups = 32;  // inside each other; bounds the compiler's recursion
constexpr std::uint32_t kMaxRepeats = 255;
constexpr std::uint32_t kOpen = UINT32_MAX;  // a way out that is not connected yet

std::bitset<256> range(unsigned char first, unsigned char last) {
  std::bitset<256> bytes;
  for (unsigned c = first; c <= last; ++c) bytes.set(c);
  return bytes;
}

/// Of an escaped letter: \d and its like. Python's classes for ASCII.
std::optional<std::bitset<256>> class_of(char letter) {
  const std::bitset<256> digits = range('0', '9');
  const std::bitset<256> words = digits | range('a', 'z') | range('A', 'Z') | range('_', '_');
  const std::bitset<256> spaces = range('\t', '\r') | range(' ', ' ');
  switch (letter) {
    case 'd':
      return digits;
    case 'D':
      return ~digits;
    case 'w':
      return words;
    case 'W':
      return ~words;
    case 's':
      return spaces;
    case 'S':
      return ~spaces;
    default:
      return std::nullopt;
  }
}

}  // namespace

/// A recursive descent over alternatives, sequences, repeats and atoms. Each part is a range of
/// states [first, …) and the places of its loose ends.
class PatternCompiler {
 public:
  using Step = NamePattern::Step;
  using State = NamePattern::State;

  explicit PatternCompiler(std::string_view pattern) : pattern_(pattern) {}

  Result<NamePattern> compile() {
    EVALCAR_ASSIGN_OR_RETURN(const Part whole, alternatives(0));
    if (place_ < pattern_.size()) return refuse("an unmatched \")\"");
    EVALCAR_ASSIGN_OR_RETURN(const std::uint32_t match, add(State{}));
    connect(whole, match);
    compiled_.first_ = whole.first;
    return std::move(compiled_);
  }

 private:
  struct Part {
    std::uint32_t first = 0;
    std::vector<std::uint32_t> ends;  // 2 · state, + 1 for `other`
  };

  Error refuse(const std::string& what) const {
    return make_error(ErrorCode::kUnsupported, "pattern " + quote_name(pattern_) + " has " + what +
                                                   " at byte " + std::to_string(place_) +
                                                   ", which is not understood here");
  }

  Result<std::uint32_t> add(State state) {
    if (compiled_.states_.size() >= kMaxStates) return refuse("too many states");
    compiled_.states_.push_back(state);
    return static_cast<std::uint32_t>(compiled_.states_.size() - 1);
  }

  Result<Part> single(State state) {
    state.next = kOpen;
    EVALCAR_ASSIGN_OR_RETURN(const std::uint32_t id, add(state));
    return Part{id, {2 * id}};
  }

  void connect(const Part& part, std::uint32_t to) {
    for (const std::uint32_t end : part.ends) {
      State& state = compiled_.states_[end / 2];
      (end % 2 == 0 ? state.next : state.other) = to;
    }
  }

  bool at_end() const { return place_ >= pattern_.size(); }
  char peek() const { return pattern_[place_]; }
  bool take(std::string_view text) {
    if (!pattern_.substr(place_).starts_with(text)) return false;
    place_ += text.size();
    return true;
  }

  Result<Part> alternatives(int depth) {
    EVALCAR_ASSIGN_OR_RETURN(Part first, sequence(depth));
    while (take("|")) {
      EVALCAR_ASSIGN_OR_RETURN(const Part second, sequence(depth));
      EVALCAR_ASSIGN_OR_RETURN(const std::uint32_t split,
                               add(State{Step::kSplit, first.first, second.first, {}}));
      first.first = split;
      first.ends.insert(first.ends.end(), second.ends.begin(), second.ends.end());
    }
    return first;
  }

  Result<Part> sequence(int depth) {
    std::optional<Part> whole;
    while (!at_end() && peek() != '|' && peek() != ')') {
      EVALCAR_ASSIGN_OR_RETURN(Part part, repeated(depth));
      if (whole) {
        connect(*whole, part.first);
        whole->ends = std::move(part.ends);
      } else {
        whole = std::move(part);
      }
    }
    return whole ? Result<Part>(std::move(*whole)) : nothing();
  }

  /// Matches the empty text.
  Result<Part> nothing() {
    EVALCAR_ASSIGN_OR_RETURN(const std::uint32_t id, add(State{Step::kSplit, kOpen, kOpen, {}}));
    return Part{id, {2 * id, 2 * id + 1}};
  }

  struct Repeat {
    std::uint32_t least = 1;
    std::optional<std::uint32_t> most = 1;  // absent: any number
  };

  Result<Part> repeated(int depth) {
    const std::size_t begin = place_;
    EVALCAR_ASSIGN_OR_RETURN(Part part, atom(depth));
    EVALCAR_ASSIGN_OR_RETURN(const std::optional<Repeat> repeat, repetition());
    if (!repeat) return part;
    const std::size_t behind = place_;
    // The atom is compiled again for each copy; the first copy stays.
    const auto copy = [&]() -> Result<Part> {
      place_ = begin;
      auto again = atom(depth);
      place_ = behind;
      return again;
    };
    std::optional<Part> whole;
    const auto append = [&](Part next) {
      if (!whole) {
        whole = std::move(next);
        return;
      }
      connect(*whole, next.first);
      whole->ends = std::move(next.ends);
    };
    std::optional<Part> unused = std::move(part);
    const auto next_copy = [&]() -> Result<Part> {
      if (!unused) return copy();
      Part first = std::move(*unused);
      unused.reset();
      return first;
    };
    for (std::uint32_t i = 0; i < repeat->least; ++i) {
      EVALCAR_ASSIGN_OR_RETURN(Part each, next_copy());
      append(std::move(each));
    }
    if (!repeat->most) {
      EVALCAR_ASSIGN_OR_RETURN(const Part each, next_copy());
      EVALCAR_ASSIGN_OR_RETURN(const std::uint32_t split,
                               add(State{Step::kSplit, each.first, kOpen, {}}));
      connect(each, split);
      append(Part{split, {2 * split + 1}});
    } else {
      for (std::uint32_t i = repeat->least; i < *repeat->most; ++i) {
        EVALCAR_ASSIGN_OR_RETURN(Part each, next_copy());
        EVALCAR_ASSIGN_OR_RETURN(const std::uint32_t split,
                                 add(State{Step::kSplit, each.first, kOpen, {}}));
        each.ends.push_back(2 * split + 1);
        each.first = split;
        append(std::move(each));
      }
    }
    return whole ? Result<Part>(std::move(*whole)) : nothing();
  }

  Result<std::optional<Repeat>> repetition() {
    std::optional<Repeat> repeat;
    if (take("*")) repeat = Repeat{0, std::nullopt};
    if (!repeat && take("+")) repeat = Repeat{1, std::nullopt};
    if (!repeat && take("?")) repeat = Repeat{0, 1};
    if (!repeat && !at_end() && peek() == '{') {
      EVALCAR_ASSIGN_OR_RETURN(repeat, counted());
    }
    if (!repeat) return repeat;
    (void)take("?");  // lazy: the same names match
    if (!at_end() && (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{')) {
      return refuse("a repeat of a repeat");
    }
    return repeat;
  }

  /// {m}, {m,}, {,n}, {m,n}
  Result<std::optional<Repeat>> counted() {
    (void)take("{");
    const auto number = [&]() -> std::optional<std::uint32_t> {
      std::optional<std::uint32_t> value;
      while (!at_end() && peek() >= '0' && peek() <= '9' && value.value_or(0) <= kMaxRepeats) {
        value = value.value_or(0) * 10 + static_cast<std::uint32_t>(peek() - '0');
        ++place_;
      }
      return value;
    };
    const auto least = number();
    Repeat repeat{least.value_or(0), least};
    if (take(",")) {
      repeat.most = number();
    } else if (!least) {
      return refuse("a \"{\" that is no count");
    }
    if (!take("}")) return refuse("a \"{\" that is no count");
    if (repeat.least > kMaxRepeats || repeat.most.value_or(0) > kMaxRepeats ||
        (repeat.most && *repeat.most < repeat.least)) {
      return refuse("a count out of range");
    }
    return std::optional<Repeat>(repeat);
  }

  Result<Part> atom(int depth) {
    const char c = peek();
    if (static_cast<unsigned char>(c) >= 0x80) return refuse("a character beyond ASCII");
    switch (c) {
      case '(':
        return group(depth);
      case '[':
        return char_class();
      case '.':
        ++place_;
        return single(State{Step::kBytes, 0, 0, ~range('\n', '\n')});
      case '^':
        ++place_;
        return single(State{Step::kStart, 0, 0, {}});
      case '$':
        ++place_;
        return single(State{Step::kEnd, 0, 0, {}});
      case '*':
      case '+':
      case '?':
      case '{':
        return refuse("a repeat of nothing");
      case '\\': {
        EVALCAR_ASSIGN_OR_RETURN(const auto bytes, escaped());
        return single(State{Step::kBytes, 0, 0, bytes});
      }
      default:
        ++place_;
        return single(State{Step::kBytes, 0, 0,
                            range(static_cast<unsigned char>(c), static_cast<unsigned char>(c))});
    }
  }

  Result<Part> group(int depth) {
    if (depth >= kMaxGroups) return refuse("too many groups inside each other");
    (void)take("(");
    if (!take("?:") && !at_end() && peek() == '?') return refuse("an extended group \"(?\"");
    EVALCAR_ASSIGN_OR_RETURN(Part part, alternatives(depth + 1));
    if (!take(")")) return refuse("an unclosed group");
    return part;
  }

  /// A backslash and what follows.
  Result<std::bitset<256>> escaped() {
    ++place_;
    if (at_end()) return refuse("a backslash at its end");
    const char c = peek();
    if (const auto known = class_of(c)) {
      ++place_;
      return *known;
    }
    const auto byte = static_cast<unsigned char>(c);
    const bool letter_or_digit =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || byte >= 0x80;
    if (letter_or_digit) return refuse("an escape");
    ++place_;
    return range(byte, byte);
  }

  Result<Part> char_class() {
    (void)take("[");
    const bool negated = take("^");
    std::bitset<256> bytes;
    for (bool first = true; first || at_end() || peek() != ']'; first = false) {
      if (at_end()) return refuse("an unclosed class");
      EVALCAR_ASSIGN_OR_RETURN(const std::bitset<256> low, class_member());
      if (pattern_.substr(place_).starts_with("-") && place_ + 1 < pattern_.size() &&
          pattern_[place_ + 1] != ']') {
        ++place_;
        EVALCAR_ASSIGN_OR_RETURN(const std::bitset<256> high, class_member());
        if (low.count() != 1 || high.count() != 1 || low._Find_first() > high._Find_first()) {
          return refuse("a bad range in a class");
        }
        bytes |= range(static_cast<unsigned char>(low._Find_first()),
                       static_cast<unsigned char>(high._Find_first()));
      } else {
        bytes |= low;
      }
    }
    (void)take("]");
    return single(State{Step::kBytes, 0, 0, negated ? ~bytes : bytes});
  }

  Result<std::bitset<256>> class_member() {
    const auto byte = static_cast<unsigned char>(peek());
    if (byte >= 0x80) return refuse("a character beyond ASCII");
    if (peek() == '\\') return escaped();
    ++place_;
    return range(byte, byte);
  }

  std::string_view pattern_;
  std::size_t place_ = 0;
  NamePattern compiled_;
};

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
