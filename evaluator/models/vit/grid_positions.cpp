#include "evaluator/models/vit/grid_positions.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace evalcar::models::vit {
namespace {

/// The two positions of one axis between which a patch lies.
struct Taps {
  std::array<std::int64_t, 2> places;
  std::array<float, 2> weights;
};

Taps taps_of(std::int64_t index, std::int64_t size, std::int64_t side) {
  const float source = static_cast<float>(index) * static_cast<float>(side - 1) /
                       static_cast<float>(std::max<std::int64_t>(1, size - 1));
  const float floor = std::floor(source);
  Taps taps{};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto offset = static_cast<std::int64_t>(i);
    taps.places[i] =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(floor) + offset, 0, side - 1);
    taps.weights[i] = std::max(0.0F, 1.0F - std::abs(source - floor - static_cast<float>(offset)));
  }
  return taps;
}

void append_frame(const ImageGrid& grid, std::int64_t merge, std::int64_t side, GridTaps& out) {
  for (std::int64_t unit = 0; unit < grid.h * grid.w / (merge * merge); ++unit) {
    const std::int64_t top = unit / (grid.w / merge) * merge;
    const std::int64_t left = unit % (grid.w / merge) * merge;
    for (std::int64_t patch = 0; patch < merge * merge; ++patch) {
      const Taps rows = taps_of(top + patch / merge, grid.h, side);
      const Taps columns = taps_of(left + patch % merge, grid.w, side);
      for (std::size_t y = 0; y < 2; ++y) {
        for (std::size_t x = 0; x < 2; ++x) {
          out.indices.push_back(rows.places[y] * side + columns.places[x]);
          out.weights.push_back(rows.weights[y] * columns.weights[x]);
        }
      }
    }
  }
}

}  // namespace

GridTaps grid_taps(std::span<const ImageGrid> grids, std::int64_t merge, std::int64_t side) {
  GridTaps out;
  for (const ImageGrid& grid : grids) {
    for (std::int64_t t = 0; t < grid.t; ++t) append_frame(grid, merge, side, out);
  }
  return out;
}

}  // namespace evalcar::models::vit
