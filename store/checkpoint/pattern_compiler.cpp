// Thompson's construction: a pattern becomes a graph of states.
#include "store/checkpoint/pattern_compiler.h"

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

}  // namespace

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

Result<NamePattern> PatternCompiler::compile() {
  EVALCAR_ASSIGN_OR_RETURN(const Part whole, alternatives(0));
  if (place_ < pattern_.size()) return refuse("an unmatched \")\"");
  EVALCAR_ASSIGN_OR_RETURN(const std::uint32_t match, add(State{}));
  connect(whole, match);
  compiled_.first_ = whole.first;
  return std::move(compiled_);
}

Error PatternCompiler::refuse(const std::string& what) const {
  return make_error(ErrorCode::kUnsupported, "pattern " + quote_name(pattern_) + " has " + what +
                                                 " at byte " + std::to_string(place_) +
                                                 ", which is not understood here");
}

Result<std::uint32_t> PatternCompiler::add(State state) {
  if (compiled_.states_.size() >= kMaxStates) return refuse("too many states");
  compiled_.states_.push_back(state);
  return static_cast<std::uint32_t>(compiled_.states_.size() - 1);
}

Result<PatternCompiler::Part> PatternCompiler::single(State state) {
  state.next = kOpen;
  EVALCAR_ASSIGN_OR_RETURN(const std::uint32_t id, add(state));
  return Part{id, {2 * id}};
}

void PatternCompiler::connect(const Part& part, std::uint32_t to) {
  for (const std::uint32_t end : part.ends) {
    State& state = compiled_.states_[end / 2];
    (end % 2 == 0 ? state.next : state.other) = to;
  }
}

bool PatternCompiler::take(std::string_view text) {
  if (!pattern_.substr(place_).starts_with(text)) return false;
  place_ += text.size();
  return true;
}

Result<PatternCompiler::Part> PatternCompiler::alternatives(int depth) {
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

Result<PatternCompiler::Part> PatternCompiler::sequence(int depth) {
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

Result<PatternCompiler::Part> PatternCompiler::nothing() {
  EVALCAR_ASSIGN_OR_RETURN(const std::uint32_t id, add(State{Step::kSplit, kOpen, kOpen, {}}));
  return Part{id, {2 * id, 2 * id + 1}};
}

Result<PatternCompiler::Part> PatternCompiler::repeated(int depth) {
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

Result<std::optional<PatternCompiler::Repeat>> PatternCompiler::repetition() {
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

Result<std::optional<PatternCompiler::Repeat>> PatternCompiler::counted() {
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

Result<PatternCompiler::Part> PatternCompiler::atom(int depth) {
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

Result<PatternCompiler::Part> PatternCompiler::group(int depth) {
  if (depth >= kMaxGroups) return refuse("too many groups inside each other");
  (void)take("(");
  if (!take("?:") && !at_end() && peek() == '?') return refuse("an extended group \"(?\"");
  EVALCAR_ASSIGN_OR_RETURN(Part part, alternatives(depth + 1));
  if (!take(")")) return refuse("an unclosed group");
  return part;
}

Result<std::bitset<256>> PatternCompiler::escaped() {
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

Result<PatternCompiler::Part> PatternCompiler::char_class() {
  (void)take("[");
  const bool negated = take("^");
  std::bitset<256> bytes;
  for (bool first = true; first || at_end() || peek() != ']'; first = false) {
    if (at_end()) return refuse("an unclosed class");
    EVALCAR_ASSIGN_OR_RETURN(const std::bitset<256> low, class_member());
    if (pattern_.substr(place_).starts_with('-') && place_ + 1 < pattern_.size() &&
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

Result<std::bitset<256>> PatternCompiler::class_member() {
  const auto byte = static_cast<unsigned char>(peek());
  if (byte >= 0x80) return refuse("a character beyond ASCII");
  if (peek() == '\\') return escaped();
  ++place_;
  return range(byte, byte);
}

}  // namespace evalcar::checkpoint
