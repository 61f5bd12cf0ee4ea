// Reading config.json: every number has a range, so that a hostile or torn file is refused by name
// before anything is allocated from it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::models {

// Far above every known model (hidden 16,384, 126 layers, vocabulary 262,144), and small enough
// that no product of two overflows.
inline constexpr std::int64_t kMostWidth = 1 << 17;
inline constexpr std::int64_t kMostLayers = 1024;
inline constexpr std::int64_t kMostHeads = 4096;
inline constexpr std::int64_t kMostVocabulary = 1 << 23;

/// One object of a configuration file, with the words that name it in messages.
class ConfigFields {
 public:
  /// `json` must outlive the object. `place`: "config.json: text_config".
  ConfigFields(const nlohmann::json& json, std::string place);

  /// An integer in [least, most]; absent (or null) takes `fallback`, or is an error if there is
  /// none.
  Result<std::int64_t> integer(std::string_view key, std::int64_t least, std::int64_t most,
                               std::optional<std::int64_t> fallback = {}) const;
  /// A finite number in [least, most].
  Result<double> number(std::string_view key, double least, double most,
                        std::optional<double> fallback = {}) const;
  Result<bool> boolean(std::string_view key, bool fallback) const;
  Result<std::string> text(std::string_view key, std::optional<std::string> fallback = {}) const;
  /// A list of at most `limit` integers in [least, most]; absent gives `fallback`.
  Result<std::vector<std::int64_t>> integers(std::string_view key, std::int64_t least,
                                             std::int64_t most, std::size_t limit,
                                             std::vector<std::int64_t> fallback) const;
  /// The object under `key`; absent if there is none.
  Result<std::optional<ConfigFields>> object(std::string_view key) const;
  /// True if the key is there and not null.
  bool has(std::string_view key) const;

  const nlohmann::json& json() const { return *json_; }
  const std::string& place() const { return place_; }
  /// kCorruption "<place>.<key> is <seen>; <expected>".
  Error unexpected(std::string_view key, std::string_view expected) const;
  /// kUnsupported "<place>: <what>".
  Error unsupported(const std::string& what) const;
  /// kUnsupported unless the text under `key` is `value`, or nothing is there.
  Status require(std::string_view key, std::string_view value) const;
  /// kCorruption "<what> (<value> is not a multiple of <divisor>)" unless it is.
  Status require_multiple(std::string_view what, std::int64_t value, std::int64_t divisor) const;

 private:
  const nlohmann::json* json_;
  std::string place_;
};

/// Reads `<dir>/config.json` (at most 4 MiB, nesting at most 32): kNotFound without one,
/// kCorruption if it is not a JSON object.
Result<nlohmann::json> read_config(const FileSystem& files, const std::string& dir);

}  // namespace evalcar::models
