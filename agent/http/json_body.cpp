#include "agent/http/json_body.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace evalcar::http {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kDepth = 32;
constexpr std::size_t kValues = 10'000;

/// Counts while it passes everything on: what is too much ends the parse where it is seen.
class Bounded {
 public:
  bool value() { return ++values_ <= kValues || fail("more than 10,000 values"); }
  bool open() {
    keys_.emplace_back();
    if (keys_.size() > kDepth) return fail("deeper than 32 levels");
    return value();
  }
  bool close() {
    keys_.pop_back();
    return true;
  }
  bool key(const std::string& name) {
    return keys_.back().insert(name).second || fail("the same name twice in an object");
  }
  bool fail(const char* why, ErrorCode code = ErrorCode::kUnsupported) {
    if (!error_.has_value()) error_ = make_error(code, why);
    return false;
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::size_t values_ = 0;
  std::optional<Error> error_;
};

/// A SAX handler that only judges; what it lets through is parsed a second time.
struct Judge {
  Bounded bounds;
  using number_integer_t = OrderedJson::number_integer_t;
  using number_unsigned_t = OrderedJson::number_unsigned_t;
  using number_float_t = OrderedJson::number_float_t;
  using string_t = OrderedJson::string_t;
  using binary_t = OrderedJson::binary_t;
  bool null() { return bounds.value(); }
  bool boolean(bool) { return bounds.value(); }
  bool number_integer(number_integer_t) { return bounds.value(); }
  bool number_unsigned(number_unsigned_t) { return bounds.value(); }
  bool number_float(number_float_t, const string_t&) { return bounds.value(); }
  bool string(string_t&) { return bounds.value(); }
  bool binary(binary_t&) { return bounds.value(); }
  bool start_object(std::size_t) { return bounds.open(); }
  bool end_object() { return bounds.close(); }
  bool start_array(std::size_t) { return bounds.open(); }
  bool end_array() { return bounds.close(); }
  bool key(string_t& name) { return bounds.key(name); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) {
    at = position;
    if (e.id / 100 == 4) return bounds.fail("a number that is too large");
    return bounds.fail("not JSON", ErrorCode::kInvalidArgument);
  }
  std::size_t at = 0;
};

}  // namespace

Result<OrderedJson> parse_body(std::string_view text) {
  Judge judge;
  if (!OrderedJson::sax_parse(text.begin(), text.end(), &judge)) {
    Error error = *judge.bounds.error();
    if (judge.at > 0) error.message += " (at byte " + std::to_string(judge.at) + ")";
    return error;
  }
  OrderedJson value = OrderedJson::parse(text.begin(), text.end(), nullptr, false);
  if (value.is_discarded()) return make_error(ErrorCode::kInvalidArgument, "not JSON");
  return value;
}

}  // namespace evalcar::http
