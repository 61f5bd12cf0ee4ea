// What a request's line asks for: "/jobs/abc?x=1" taken apart.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "store/base/result.h"

namespace evalcar::http {

struct Target {
  std::string path;                          ///< decoded; begins with a slash
  std::map<std::string, std::string> query;  ///< decoded; of equal names the last
};

/// kInvalidArgument: no path, a broken escape, or a control character behind one.
Result<Target> parse_target(std::string_view text);

}  // namespace evalcar::http
