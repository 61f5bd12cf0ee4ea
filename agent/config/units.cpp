#include "agent/config/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <span>

namespace evalcar::config {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 5> kTimeUnits = {
    {{"ms", 1}, {"s", 1e3}, {"min", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}}};
constexpr std::array<Unit, 10> kByteUnits = {{{"B", 1},
                                              {"kB", 1e3},
                                              {"MB", 1e6},
                                              {"GB", 1e9},
                                              {"TB", 1e12},
                                              {"KiB", 1024.0},
                                              {"MiB", 1048576.0},
                                              {"GiB", 1073741824.0},
                                              {"TiB", 1099511627776.0},
                                              {"KB", 1e3}}};

Error bad_value(std::string_view text, std::string_view expected) {
  return make_error(ErrorCode::kInvalidArgument,
                    "\"" + std::string(text) + "\": expected " + std::string(expected));
}

/// A finite number >= 0 followed by one of `units`.
Result<double> parse_with_unit(std::string_view text, std::span<const Unit> units,
                               std::string_view expected) {
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !(number >= 0)) return bad_value(text, expected);
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty() && number == 0) return 0.0;
  for (const Unit& known : units) {
    if (unit == known.name) {
      const double value = number * known.factor;
      if (value > 9e15) return bad_value(text, "a smaller value");  // stays exact in a double
      const double whole = std::round(value);
      if (whole == 0 && number > 0) return bad_value(text, expected);  // 0 often means "off"
      return whole;
    }
  }
  return bad_value(text, expected);
}

}  // namespace

Result<Duration> parse_duration(std::string_view text) {
  EVALCAR_ASSIGN_OR_RETURN(
      const double ms,
      parse_with_unit(text, kTimeUnits, "a duration with a unit: 500ms, 10s, 2min, 1h or 3d"));
  return Duration(static_cast<std::int64_t>(ms));
}

std::string format_duration(Duration duration) {
  const std::int64_t ms = duration.count();
  for (auto unit = kTimeUnits.rbegin(); unit != kTimeUnits.rend(); ++unit) {
    const auto factor = static_cast<std::int64_t>(unit->factor);
    if (ms != 0 && ms % factor == 0) return std::to_string(ms / factor) + std::string(unit->name);
  }
  return std::to_string(ms) + "ms";
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  EVALCAR_ASSIGN_OR_RETURN(
      const double bytes,
      parse_with_unit(text, kByteUnits, "a size with a unit: 500MB, 8GiB or 4096B"));
  return static_cast<std::uint64_t>(bytes);
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) value /= 1024, ++unit;
  std::array<char, 32> text{};
  const int n = std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f " : "%.1f ", value);
  return std::string(text.data(), static_cast<std::size_t>(n)) + std::string(kNames[unit]);
}

}  // namespace evalcar::config
