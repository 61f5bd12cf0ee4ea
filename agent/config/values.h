// A value as the configuration file gives it, read as one type.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "agent/config/units.h"
#include "store/base/result.h"

namespace evalcar::config {

/// A value as TOML gives it. An inline table {a = "1s"} arrives as the list ["a=1s"].
using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;

/// "expected " + what: the error of every value that is refused.
Error expected(std::string_view what);

// These turn a Value into one type, or say what was expected.
Result<std::string> text(const Value& value);
/// A list of strings, or one string with commas.
Result<std::vector<std::string>> text_list(const Value& value);
Result<std::int64_t> integer(const Value& value, std::int64_t least);
/// Finite.
Result<double> number(const Value& value);
Result<bool> boolean(const Value& value);
/// With a unit, or 0.
Result<Duration> duration(const Value& value);
/// With a unit, or 0.
Result<std::uint64_t> bytes(const Value& value);
Result<std::string> choice(const Value& value, std::initializer_list<std::string_view> choices);
/// The value is this very string.
bool is_word(const Value& value, std::string_view word);

}  // namespace evalcar::config
