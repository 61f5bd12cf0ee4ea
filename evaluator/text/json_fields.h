// Fields of a JSON object that a stranger wrote: absent, null and wrongly typed are all "nothing".
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

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

/// As bool_field(), `otherwise` where it is absent. kCorruption where it is something else.
inline Result<bool> checked_bool(const nlohmann::json& object, const char* name, bool otherwise) {
  const auto it = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || it == object.end()) return otherwise;
  if (it->is_boolean()) return it->get<bool>();
  return make_error(ErrorCode::kCorruption,
                    std::string("\"") + name + "\" is " + it->type_name() + ", no true or false");
}

/// The deepest nesting that is read; the deepest of the files known here is 7. The parser and the
/// destructor need no stack for it, but copies and dump() recurse.
inline constexpr int kMaxJsonDepth = 32;

/// Whether lists and objects are nested deeper than kMaxJsonDepth in what would be JSON.
inline bool is_nested_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string) {
      if (c == '\\') ++i;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

/// Parses text that a stranger wrote. kCorruption with the parser's words and the place, also for
/// what is nested deeper than kMaxJsonDepth.
inline Result<nlohmann::json> parse_json(const std::string& text, const std::string& name) {
  if (is_nested_too_deep(text))
    return make_error(ErrorCode::kCorruption, name + " is JSON nested too deep: more than " +
                                                  std::to_string(kMaxJsonDepth) + " levels");
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    return make_error(ErrorCode::kCorruption, name + " is not valid JSON: " + error.what());
  }
}

}  // namespace evalcar::text
