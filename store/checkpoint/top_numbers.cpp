#include "store/checkpoint/top_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kPieceBytes = std::size_t{1} << 20U;
constexpr std::size_t kMaxStringBytes = std::size_t{16} << 20U;
constexpr std::size_t kMaxDepth = 256;
constexpr std::string_view kNan = "NaN";
constexpr std::string_view kInfinity = "Infinity";

/// The text of a file for the parser, which sees a 0 where Python wrote what is no number. It also
/// follows strings and brackets, to tell a text that ends too early from one that is no JSON.
class PythonText {
 public:
  PythonText(const ReadableFile& file, std::uint64_t size) : file_(file), size_(size) {}

  /// No further character: the end, or trouble().
  bool at_end() { return at_ == ready_ && !fill(); }
  const char& now() const { return text_[at_]; }
  void advance() { ++at_; }
  /// Goes on to the end without a parser, whatever the bytes are.
  void drain() {
    draining_ = true;
    while (!at_end()) at_ = ready_;
  }

  /// Of the byte that comes next.
  std::uint64_t offset() const { return begin_ + at_; }
  /// Why there is no further character before the end.
  const Status& trouble() const { return trouble_; }
  /// What is wrong with the bytes, before the parser sees them.
  const std::string& wrong() const { return wrong_; }
  /// Begins as an object whose last brace has not come.
  bool may_still_grow() const { return !closed_ && (first_ == '{' || first_ == '\0'); }

 private:
  bool fill() {
    if (!trouble_.has_value() || (!wrong_.empty() && !draining_)) return false;
    while (at_ == ready_) {
      begin_ += at_;
      text_.erase(0, at_);
      at_ = ready_ = 0;
      const bool ended = begin_ + text_.size() >= size_;
      if (!ended && !read_piece()) return false;
      // A word may go on in the next piece.
      const std::size_t held_back = begin_ + text_.size() >= size_ ? 0 : kInfinity.size() - 1;
      const std::size_t end = text_.size() - std::min(held_back, text_.size());
      while (ready_ < end) {
        if (!take(ready_)) return ready_ > 0;
        ++ready_;
      }
      if (ended && at_ == ready_) return false;
    }
    return true;
  }

  bool read_piece() {
    const std::size_t kept = text_.size();
    const auto more =
        static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, size_ - begin_ - kept));
    text_.resize(kept + more);
    const auto read = file_.read_at(
        begin_ + kept, std::as_writable_bytes(std::span<char>(text_.data() + kept, more)));
    text_.resize(kept + (read.has_value() ? *read : 0));
    if (!read.has_value()) trouble_ = read.error();
    if (read.has_value() && *read < more) size_ = begin_ + text_.size();  // it was cut meanwhile
    return read.has_value();
  }

  bool take(std::size_t at) {
    const char c = text_[at];
    // The parser takes a NUL for the end of its input, and skips a byte order mark.
    if (c == '\0') return refuse("a NUL in the JSON text");
    const bool is_blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (first_ == '\0' && !is_blank) {
      first_ = c;
      if (c == '\xef') return refuse("a byte order mark before the JSON text");
    }
    if (in_string_) {
      if (++string_bytes_ > kMaxStringBytes && !refuse("a string of more than 16 MiB"))
        return false;
      if (!std::exchange(escaped_, false)) {
        escaped_ = c == '\\';
        in_string_ = c != '"';
      }
      return true;
    }
    in_string_ = c == '"';
    if (in_string_) string_bytes_ = 0;
    if (c == '{' || c == '[') ++depth_;
    if ((c == '}' || c == ']') && depth_ > 0) {
      --depth_;
      closed_ = closed_ || depth_ == 0;
    }
    if (c == kNan.front()) put_zero_for(kNan, at);
    if (c == kInfinity.front()) put_zero_for(kInfinity, at);
    return true;
  }

  void put_zero_for(std::string_view word, std::size_t at) {
    if (text_.compare(at, word.size(), word) != 0) return;
    text_.replace(at, word.size(), word.size(), ' ');
    text_[at] = '0';
  }

  bool refuse(const char* what) {
    if (wrong_.empty()) wrong_ = what;
    return draining_;
  }

  const ReadableFile& file_;
  std::uint64_t size_;
  std::uint64_t begin_ = 0;  ///< in the file: where text_ begins
  std::string text_;
  std::size_t at_ = 0;     ///< the next character
  std::size_t ready_ = 0;  ///< what lies before was looked at
  Status trouble_;
  std::string wrong_;
  char first_ = '\0';
  bool in_string_ = false;
  bool escaped_ = false;
  std::size_t string_bytes_ = 0;
  std::size_t depth_ = 0;
  bool closed_ = false;
  bool draining_ = false;
};

class Characters {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  /// nullptr: the end.
  explicit Characters(PythonText* text) : text_(text) {}
  reference operator*() const { return text_->now(); }
  Characters& operator++() {
    text_->advance();
    return *this;
  }
  Characters operator++(int) {
    Characters before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Characters& other) const { return is_end() == other.is_end(); }

 private:
  bool is_end() const { return text_ == nullptr || text_->at_end(); }

  PythonText* text_;
};

/// Keeps the numbers that are asked for, and passes everything else over.
class NumbersAtTop final : public Json::json_sax_t {
 public:
  explicit NumbersAtTop(const std::set<std::string, std::less<>>& keys) : keys_(keys) {}

  TopNumbers take() { return std::move(numbers_); }
  const std::string& failure() const { return failure_; }

  bool null() override { return scalar(); }
  bool boolean(bool /*value*/) override { return scalar(); }
  bool number_integer(number_integer_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return number(value);
  }
  bool string(string_t& /*value*/) override { return scalar(); }
  bool binary(binary_t& /*value*/) override { return scalar(); }
  bool start_object(std::size_t /*elements*/) override { return open(true); }
  bool end_object() override { return --depth_ < kMaxDepth; }
  bool start_array(std::size_t /*elements*/) override { return open(false); }
  bool end_array() override { return --depth_ < kMaxDepth; }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    key_ = name;
    if (!keys_.contains(name) || seen_.insert(name).second) return true;
    return fail("key " + quote_name(name) + " appears twice");
  }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const Json::exception& error) override {
    // The library's text repeats bytes of the file: only its number is passed on.
    return fail("not valid JSON (rule " + std::to_string(error.id) + ")");
  }

 private:
  bool fail(std::string why) {
    failure_ = std::move(why);
    return false;
  }
  bool scalar() { return depth_ > 0 || fail("expected an object at the top"); }
  bool number(double value) {
    if (depth_ == 1 && keys_.contains(key_)) numbers_.emplace(key_, value);
    return scalar();
  }
  bool open(bool is_object) {
    if (depth_ == 0 && !is_object) return fail("expected an object at the top");
    if (++depth_ > kMaxDepth) return fail("nested deeper than " + std::to_string(kMaxDepth));
    return true;
  }

  const std::set<std::string, std::less<>>& keys_;
  std::set<std::string, std::less<>> seen_;
  std::size_t depth_ = 0;
  std::string key_;
  TopNumbers numbers_;
  std::string failure_;
};

}  // namespace

Result<TopNumbers> top_level_numbers(const FileSystem& files, const std::string& path,
                                     const std::set<std::string, std::less<>>& keys,
                                     std::uint64_t limit_bytes) {
  EVALCAR_ASSIGN_OR_RETURN(const auto file, files.open_readable(path));
  return top_level_numbers(*file, path, keys, limit_bytes);
}

Result<TopNumbers> top_level_numbers(const ReadableFile& file, const std::string& path,
                                     const std::set<std::string, std::less<>>& keys,
                                     std::uint64_t limit_bytes) {
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, file.info());
  if (info.size_bytes > limit_bytes) {
    return make_error(ErrorCode::kCorruption, path + ": " + std::to_string(info.size_bytes) +
                                                  " bytes, expected at most " +
                                                  std::to_string(limit_bytes));
  }
  PythonText text(file, info.size_bytes);
  NumbersAtTop numbers(keys);
  bool parsed = false;
  try {
    parsed = Json::sax_parse(Characters(&text), Characters(nullptr), &numbers);
  } catch (const std::exception& error) {  // out of memory: the events themselves throw nothing
    return make_error(ErrorCode::kUnavailable, path + ": " + error.what());
  }
  if (parsed && text.wrong().empty() && text.trouble().has_value()) return numbers.take();
  const std::string what = text.wrong().empty() ? numbers.failure() : text.wrong();
  const std::uint64_t at = text.offset();
  text.drain();
  if (!text.trouble().has_value()) return text.trouble().error();
  if (text.may_still_grow()) {
    return make_error(ErrorCode::kUnavailable,
                      path + ": ends before its JSON does (still being written, or torn)");
  }
  return make_error(ErrorCode::kCorruption, path + ": " + what + ", at byte " + std::to_string(at));
}

std::optional<std::int64_t> whole_number(const TopNumbers& numbers, std::string_view key) {
  constexpr double kMost = 9007199254740992;  // 2^53: beyond it not every whole number is a double
  const auto found = numbers.find(key);
  if (found == numbers.end() || !(found->second >= 0 && found->second <= kMost)) return {};
  if (std::floor(found->second) != found->second) return {};
  return static_cast<std::int64_t>(found->second);
}

}  // namespace evalcar::checkpoint
