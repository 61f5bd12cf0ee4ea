#include "agent/report/sparkline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace evalcar::report {
namespace {

constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

/// At most `most` means of neighbouring values.
std::vector<double> thinned(std::span<const double> values, std::size_t most) {
  const std::size_t count = std::min(values.size(), most);
  std::vector<double> means;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t from = i * values.size() / count;
    const std::size_t to = (i + 1) * values.size() / count;
    double sum = 0;
    for (std::size_t at = from; at < to; ++at) sum += values[at];
    means.push_back(sum / static_cast<double>(to - from));
  }
  return means;
}

}  // namespace

std::string sparkline(std::span<const double> values, std::size_t most) {
  const std::vector<double> shown = thinned(values, most);
  if (shown.empty()) return "";
  const auto [low, high] = std::minmax_element(shown.begin(), shown.end());
  std::string line;
  for (const double value : shown) {
    const double part = *high > *low ? (value - *low) / (*high - *low) : 0.5;
    const auto block = static_cast<std::size_t>(std::lround(part * (kBlocks.size() - 1)));
    line += kBlocks[std::min(block, kBlocks.size() - 1)];
  }
  return line;
}

std::string bar(double part, std::size_t cells) {
  const double held = std::isfinite(part) ? std::clamp(part, 0.0, 1.0) : 0.0;
  const auto full = static_cast<std::size_t>(held * static_cast<double>(cells));
  return "[" + std::string(full, '#') + std::string(cells - full, '-') + "]";
}

}  // namespace evalcar::report
