#include "store/checkpoint/json_scan.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

using Json = nlohmann::json;

/// The keys of one object that is open, as 64 bits of each: two that are equal are always found.
/// Two others with equal bits, of which there are none in a billion files that nobody made for it,
/// are taken for the same, too.
class SeenKeys {
 public:
  /// False if `key` was there already.
  bool insert(std::string_view key) {
    std::uint64_t bits = std::hash<std::string_view>()(key);
    if (bits == kFree) ++bits;
    if (2 * count_ >= slots_.size()) grow();
    return place(bits);
  }

 private:
  static constexpr std::uint64_t kFree = 0;

  bool place(std::uint64_t bits) {
    std::size_t at = bits & (slots_.size() - 1);
    while (slots_[at] != kFree && slots_[at] != bits) at = (at + 1) & (slots_.size() - 1);
    if (slots_[at] == bits) return false;
    slots_[at] = bits;
    ++count_;
    return true;
  }
  void grow() {
    const auto old = std::exchange(slots_, {});
    slots_.assign(std::max<std::size_t>(8, 2 * old.size()), kFree);
    count_ = 0;
    for (const std::uint64_t bits : old) {
      if (bits != kFree) place(bits);
    }
  }

  std::vector<std::uint64_t> slots_;  // a power of two of them; at most half are taken
  std::size_t count_ = 0;
};

/// A text for the parser, which tells nobody how far it has come: it is counted here.
class CountedChars {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountedChars(const char* at, std::size_t* taken) : at_(at), taken_(taken) {}
  reference operator*() const { return *at_; }
  CountedChars& operator++() {
    ++at_;
    ++*taken_;
    return *this;
  }
  CountedChars operator++(int) {
    CountedChars before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountedChars& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  std::size_t* taken_;
};

/// Adapts nlohmann's event interface, whose parser keeps its own stack and so cannot overflow ours.
class Events final : public Json::json_sax_t {
 public:
  Events(std::string_view text, JsonVisitor& visitor, std::size_t max_depth)
      : text_(text), visitor_(visitor), max_depth_(max_depth) {}

  /// Bytes that the parser has taken.
  std::size_t* taken() { return &taken_; }

  bool null() override { return emit({}); }
  bool boolean(bool value) override {
    JsonScalar scalar{.kind = JsonScalar::Kind::kBool, .text = {}};
    scalar.boolean = value;
    return emit(scalar);
  }
  bool number_integer(number_integer_t) override {
    return emit({.kind = JsonScalar::Kind::kNegative, .text = {}});
  }
  bool number_unsigned(number_unsigned_t value) override {
    return emit({.kind = JsonScalar::Kind::kUnsigned, .number = value, .text = {}});
  }
  bool number_float(number_float_t, const string_t&) override {
    return emit({.kind = JsonScalar::Kind::kReal, .text = {}});
  }
  bool string(string_t& value) override {
    return emit({.kind = JsonScalar::Kind::kString, .text = value});
  }
  bool binary(binary_t&) override { return fail("binary value"); }

  bool start_object(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(true); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    begin_token();
    if (!keys_.back().insert(name)) return fail("key " + quote_name(name) + " appears twice");
    path_.back() = name;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const Json::exception& error) override {
    // The library's text repeats bytes of the file: only its number and the place are passed on.
    // It counts from one, and the end of the text as a byte.
    failure_ = "not valid JSON (rule " + std::to_string(error.id) + ")";
    visitor_.offset = std::min(position > 0 ? position - 1 : 0, text_.size());
    return false;
  }

  /// What is wrong; where, the visitor's offset says.
  const std::string& failure() const { return failure_; }

 private:
  bool fail(std::string why) {
    failure_ = std::move(why);
    return false;
  }
  bool check(std::string why) { return why.empty() || fail(std::move(why)); }
  /// Sets the visitor's offset to the first byte of the token that was just read: behind the last
  /// one, whatever separates the two. Behind a number the parser has taken one byte more.
  void begin_token() {
    const std::size_t begin = text_.find_first_not_of(" \t\r\n,:]}", last_end_);
    visitor_.offset = std::min(begin, text_.size());
    last_end_ = taken_;
  }
  bool emit(const JsonScalar& value) {
    begin_token();
    return check(visitor_.scalar(path_, value));
  }
  bool open(bool is_array) {
    begin_token();
    if (path_.size() >= max_depth_) {
      return fail("nested deeper than " + std::to_string(max_depth_));
    }
    if (!check(visitor_.open(path_, is_array))) return false;
    path_.emplace_back();
    keys_.emplace_back();
    return true;
  }
  bool close() {
    visitor_.offset = taken_ - 1;
    last_end_ = taken_;
    path_.pop_back();
    keys_.pop_back();
    return check(visitor_.close(path_));
  }

  std::string_view text_;
  JsonVisitor& visitor_;
  std::size_t max_depth_;
  JsonPath path_;
  std::vector<SeenKeys> keys_;
  std::string failure_;
  std::size_t taken_ = 0;
  std::size_t last_end_ = 0;  // where the token before ended, or a byte later
};

/// Only looks at the shape of the document.
class Shape final : public JsonVisitor {
 public:
  std::string scalar(const JsonPath& path, const JsonScalar& /*value*/) override {
    return path.empty() ? "expected an object at the top" : "";
  }
  std::string open(const JsonPath& path, bool is_array) override {
    return path.empty() && is_array ? "expected an object at the top" : "";
  }
  std::string close(const JsonPath&) override { return {}; }
};

}  // namespace

bool may_still_grow(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return true;
  if (text[first] != '{') return false;
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = first; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return false;
  }
  return true;
}

Status scan_json(std::string_view text, std::string_view where, std::size_t max_depth,
                 JsonVisitor& visitor, std::uint64_t text_offset) {
  const auto bad = [&](const std::string& what, std::size_t at) {
    return make_error(ErrorCode::kCorruption, std::string(where) + ": " + what + ", at byte " +
                                                  std::to_string(text_offset + at));
  };
  // The parser takes a NUL for the end of its input, and skips a byte order mark; neither is JSON.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return bad("a NUL in the JSON text", nul);
  }
  if (text.starts_with("\xef\xbb\xbf")) return bad("a byte order mark before the JSON text", 0);
  Events events(text, visitor, max_depth);
  bool parsed = false;
  try {
    const std::span<const char> chars(text);
    parsed = Json::sax_parse(CountedChars(chars.data(), events.taken()),
                             CountedChars(chars.data() + chars.size(), events.taken()), &events);
  } catch (const std::exception& error) {  // out of memory: the events themselves throw nothing
    return make_error(ErrorCode::kUnavailable, std::string(where) + ": " + error.what());
  }
  if (parsed) return {};
  return bad(events.failure(), visitor.offset);
}

void replace_non_finite(std::string& text) {
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') in_string = !in_string;
    if (text[at] == '\\' && in_string) ++at;
    if (in_string || at >= text.size() || (text[at] != 'N' && text[at] != 'I')) continue;
    for (const std::string_view word : {std::string_view("NaN"), std::string_view("Infinity")}) {
      if (text.compare(at, word.size(), word) != 0) continue;
      text.replace(at, word.size(), word.size(), ' ');
      text[at] = '0';
      break;
    }
  }
}

Status check_json_object(std::string_view text, const std::string& where) {
  std::string finite(text);
  replace_non_finite(finite);
  Shape shape;
  constexpr std::size_t kMaxDepth = 256;
  Status scanned = scan_json(finite, where, kMaxDepth, shape);
  if (scanned.has_value() || !may_still_grow(finite)) return scanned;
  return make_error(ErrorCode::kUnavailable,
                    where + ": ends before its JSON does (still being written, or torn)");
}

}  // namespace evalcar::checkpoint
