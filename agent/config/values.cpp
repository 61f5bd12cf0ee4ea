#include "agent/config/values.h"

#include <algorithm>
#include <cmath>

namespace evalcar::config {

Error expected(std::string_view what) {
  return make_error(ErrorCode::kInvalidArgument, "expected " + std::string(what));
}

Result<std::string> text(const Value& value) {
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  return expected("a string");
}

Result<std::vector<std::string>> text_list(const Value& value) {
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) return *list;
  const auto* joined = std::get_if<std::string>(&value);
  if (joined == nullptr) return expected("a string or a list of strings");
  std::vector<std::string> list;
  for (std::size_t at = 0; at <= joined->size();) {
    const std::size_t comma = std::min(joined->find(',', at), joined->size());
    std::string part = joined->substr(at, comma - at);
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    if (!part.empty()) list.push_back(std::move(part));
    at = comma + 1;
  }
  return list;
}

Result<std::int64_t> integer(const Value& value, std::int64_t least) {
  const auto* n = std::get_if<std::int64_t>(&value);
  if (n == nullptr || *n < least) {
    return expected("a whole number >= " + std::to_string(least));
  }
  return *n;
}

Result<double> number(const Value& value) {
  if (const auto* n = std::get_if<std::int64_t>(&value)) return static_cast<double>(*n);
  if (const auto* d = std::get_if<double>(&value); d != nullptr && std::isfinite(*d)) return *d;
  return expected("a number");
}

Result<bool> boolean(const Value& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b;
  return expected("true or false");
}

Result<Duration> duration(const Value& value) {
  const auto* s = std::get_if<std::string>(&value);
  if (s != nullptr) return parse_duration(*s);
  if (const auto* n = std::get_if<std::int64_t>(&value); n != nullptr && *n == 0)
    return Duration(0);
  return expected("a duration with a unit, such as \"10s\"");
}

Result<std::uint64_t> bytes(const Value& value) {
  const auto* s = std::get_if<std::string>(&value);
  if (s != nullptr) return parse_bytes(*s);
  if (const auto* n = std::get_if<std::int64_t>(&value); n != nullptr && *n == 0) {
    return std::uint64_t{0};
  }
  return expected("a size with a unit, such as \"8GiB\"");
}

Result<std::string> choice(const Value& value, std::initializer_list<std::string_view> choices) {
  std::string all;
  const auto* s = std::get_if<std::string>(&value);
  for (const std::string_view one : choices) {
    if (s != nullptr && *s == one) return *s;
    all.append(all.empty() ? "\"" : ", \"").append(one).append("\"");
  }
  return expected("one of " + all);
}

bool is_word(const Value& value, std::string_view word) {
  const auto* s = std::get_if<std::string>(&value);
  return s != nullptr && *s == word;
}

}  // namespace evalcar::config
