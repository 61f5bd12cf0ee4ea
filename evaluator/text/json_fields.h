// Fields of a JSON object that a stranger wrote: absent, null and wrongly typed are all "nothing".
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "store/base/result.h"

namespace evalcar::text {

inline std::optional<std::string> string_field(const nlohmann::json& object, const char* name) {
  const auto it = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || it == object.end() || !it->is_string()) return std::nullopt;
  return it->get<std::string>();
}

inline std::optional<bool> bool_field(const nlohmann::json& object, const char* name) {
  const auto it = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || it == object.end() || !it->is_boolean()) return std::nullopt;
  return it->get<bool>();
}

/// Parses text that a stranger wrote. kCorruption with the parser's words and the place.
inline Result<nlohmann::json> parse_json(const std::string& text, const std::string& name) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    return make_error(ErrorCode::kCorruption, name + " is not valid JSON: " + error.what());
  }
}

}  // namespace evalcar::text
