// JSON that lay on the disk, where anybody may have changed it: what is not as expected is absent.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace evalcar::publish {

/// Deeper than anything of ours is none of ours: parts of a document are copied and written by
/// recursion. No object then, as for what is no JSON.
nlohmann::ordered_json parse_shallow(const std::string& text);

/// "" if there is no such text.
std::string text_of(const nlohmann::ordered_json& object, const char* key);
std::optional<std::int64_t> integer_of(const nlohmann::ordered_json& object, const char* key);
/// An empty one if there is none.
nlohmann::ordered_json object_of(const nlohmann::ordered_json& parent, const char* key);

}  // namespace evalcar::publish
