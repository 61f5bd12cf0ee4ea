#include "agent/http/json_body.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace evalcar::http {
namespace {

using Json = nlohmann::ordered_json;

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
  bool fail(const char* why) {
    if (why_.empty()) why_ = why;
    return false;
  }
  const std::string& why() const { return why_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::size_t values_ = 0;
  std::string why_;
};

/// A SAX handler that only judges; what it lets through is parsed a second time.
struct Judge {
  Bounded bounds;
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;
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
    (void)bounds.fail(e.id / 100 == 4 ? "a number that is too large" : "not JSON");
    at = position;
    return false;
  }
  std::size_t at = 0;
};

}  // namespace

Result<Json> parse_body(std::string_view text) {
  Judge judge;
  if (!Json::sax_parse(text.begin(), text.end(), &judge)) {
    std::string why = judge.bounds.why();
    if (judge.at > 0) why += " (at byte " + std::to_string(judge.at) + ")";
    return make_error(ErrorCode::kInvalidArgument, why);
  }
  Json value = Json::parse(text.begin(), text.end(), nullptr, false);
  if (value.is_discarded()) return make_error(ErrorCode::kInvalidArgument, "not JSON");
  return value;
}

}  // namespace evalcar::http
