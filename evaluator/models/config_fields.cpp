#include "evaluator/models/config_fields.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace evalcar::models {
namespace {

constexpr std::uint64_t kConfigLimitBytes = 4u << 20;
constexpr int kNestingLimit = 32;

// A value in a message: short, whatever the file holds.
std::string shown(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list of " + std::to_string(value.size());
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string range(std::int64_t least, std::int64_t most) {
  return "expected an integer from " + std::to_string(least) + " to " + std::to_string(most);
}

std::optional<std::int64_t> integer_in(const nlohmann::json& value, std::int64_t least,
                                       std::int64_t most) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX})
    return std::nullopt;
  const auto number = value.get<std::int64_t>();
  if (number < least || number > most) return std::nullopt;
  return number;
}

}  // namespace

ConfigFields::ConfigFields(const nlohmann::json& json, std::string place)
    : json_(&json), place_(std::move(place)) {}

bool ConfigFields::has(std::string_view key) const {
  const auto found = json_->find(key);
  return found != json_->end() && !found->is_null();
}

Error ConfigFields::unexpected(std::string_view key, std::string_view expected) const {
  const auto found = json_->find(key);
  const std::string seen = found == json_->end() ? "missing" : shown(*found);
  return make_error(ErrorCode::kCorruption, place_ + ": " + std::string(key) + " is " + seen +
                                                "; " + std::string(expected));
}

Result<std::int64_t> ConfigFields::integer(std::string_view key, std::int64_t least,
                                           std::int64_t most,
                                           std::optional<std::int64_t> fallback) const {
  if (!has(key) && fallback) return *fallback;
  const auto found = json_->find(key);
  if (found != json_->end()) {
    if (const auto value = integer_in(*found, least, most)) return *value;
  }
  return unexpected(key, range(least, most));
}

Result<double> ConfigFields::number(std::string_view key, double least, double most,
                                    std::optional<double> fallback) const {
  if (!has(key) && fallback) return *fallback;
  const auto found = json_->find(key);
  if (found != json_->end() && found->is_number()) {
    const double value = found->get<double>();
    if (std::isfinite(value) && value >= least && value <= most) return value;
  }
  return unexpected(
      key, "expected a number from " + std::to_string(least) + " to " + std::to_string(most));
}

Result<bool> ConfigFields::boolean(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  const auto found = json_->find(key);
  if (found->is_boolean()) return found->get<bool>();
  return unexpected(key, "expected true or false");
}

Result<std::string> ConfigFields::text(std::string_view key,
                                       std::optional<std::string> fallback) const {
  if (!has(key) && fallback) return *fallback;
  const auto found = json_->find(key);
  if (found != json_->end() && found->is_string()) return found->get<std::string>();
  return unexpected(key, "expected a string");
}

Result<std::vector<std::int64_t>> ConfigFields::integers(std::string_view key, std::int64_t least,
                                                         std::int64_t most, std::size_t limit,
                                                         std::vector<std::int64_t> fallback) const {
  if (!has(key)) return fallback;
  const auto found = json_->find(key);
  const Error error = unexpected(
      key, "expected a list of at most " + std::to_string(limit) + ", each " + range(least, most));
  if (!found->is_array() || found->size() > limit) return error;
  std::vector<std::int64_t> values;
  for (const auto& item : *found) {
    const auto value = integer_in(item, least, most);
    if (!value) return error;
    values.push_back(*value);
  }
  return values;
}

Result<std::optional<ConfigFields>> ConfigFields::object(std::string_view key) const {
  if (!has(key)) return std::optional<ConfigFields>();
  const auto found = json_->find(key);
  if (!found->is_object()) return unexpected(key, "expected an object");
  return std::optional(ConfigFields(*found, place_ + ": " + std::string(key)));
}

Error ConfigFields::unsupported(const std::string& what) const {
  return make_error(ErrorCode::kUnsupported, place_ + ": " + what);
}

Status ConfigFields::require(std::string_view key, std::string_view value) const {
  EVALCAR_ASSIGN_OR_RETURN(const std::string seen, text(key, std::string(value)));
  if (seen == value) return {};
  return unsupported(std::string(key) + " \"" + seen + "\" (known: " + std::string(value) + ")");
}

Status ConfigFields::require_multiple(std::string_view what, std::int64_t value,
                                      std::int64_t divisor) const {
  if (value % divisor == 0) return {};
  return make_error(ErrorCode::kCorruption, place_ + ": " + std::string(what) + " (" +
                                                std::to_string(value) + " is not a multiple of " +
                                                std::to_string(divisor) + ")");
}

Result<nlohmann::json> read_config(const FileSystem& files, const std::string& dir) {
  const std::string path = join_path(dir, "config.json");
  EVALCAR_ASSIGN_OR_RETURN(const std::string content, read_file(files, path, kConfigLimitBytes));
  bool too_deep = false;
  const auto watch_depth = [&too_deep](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    too_deep = too_deep || depth > kNestingLimit;
    return !too_deep;
  };
  auto json = nlohmann::json::parse(content, watch_depth, /*allow_exceptions=*/false);
  if (too_deep) return make_error(ErrorCode::kCorruption, path + ": nested deeper than 32 levels");
  if (!json.is_object())
    return make_error(ErrorCode::kCorruption, path + ": not a JSON object (" +
                                                  std::to_string(content.size()) +
                                                  " bytes): torn, or not a model configuration");
  return json;
}

}  // namespace evalcar::models
