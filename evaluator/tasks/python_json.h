// Values of documents and result files, and Python's ways to write them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "store/base/result.h"

namespace evalcar::tasks {

using Value = nlohmann::ordered_json;

/// json.dumps(value, ensure_ascii=False): ", " and ": ", floats as repr, NaN and Infinity as Python
/// writes them.
std::string python_json(const Value& value);

/// str(value): of a string itself, of a list its repr ("['a', 1.0, None]").
std::string python_str(const Value& value);

/// Parses JSON from outside: at most 64 levels deep, UTF-8; Python's NaN and Infinity
/// are read as null. kCorruption with the place.
Result<Value> parse_json(std::string_view text);

}  // namespace evalcar::tasks
