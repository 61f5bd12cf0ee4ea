// JSON for the page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace evalcar::page {

/// Bytes that are no UTF-8 are replaced: the page shows what others wrote.
inline std::string text_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace evalcar::page
