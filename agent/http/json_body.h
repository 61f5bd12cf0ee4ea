// The JSON of a request's body, from whoever could reach us.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "store/base/result.h"

namespace evalcar::http {

/// kInvalidArgument: not JSON. kUnsupported, seen before anything is built of it: deeper than 32
/// levels, more than 10,000 values, a name twice in one object, or a number that no double holds.
Result<nlohmann::ordered_json> parse_body(std::string_view text);

}  // namespace evalcar::http
