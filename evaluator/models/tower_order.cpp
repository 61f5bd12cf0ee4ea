#include "evaluator/models/tower_order.h"

#include <algorithm>

namespace evalcar::models {
namespace {

// The windows of one picture's frame: rectangles of units, cut at the right and bottom edge.
struct Window {
  std::int64_t top, left, height, width;
  std::int64_t units() const { return height * width; }
};

std::vector<Window> windows_of(std::int64_t rows, std::int64_t columns, std::int64_t side) {
  std::vector<Window> windows;
  for (std::int64_t top = 0; top < rows; top += side) {
    for (std::int64_t left = 0; left < columns; left += side) {
      windows.push_back({top, left, std::min(side, rows - top), std::min(side, columns - left)});
    }
  }
  std::ranges::stable_sort(windows, std::ranges::greater{}, &Window::units);
  return windows;
}

void extend_run(std::vector<BlockRun>& runs, std::int64_t first, std::int64_t length) {
  if (!runs.empty()) {
    BlockRun& last = runs.back();
    if (last.length == length && last.first + last.count * length == first) {
      ++last.count;
      return;
    }
  }
  runs.push_back({first, 1, length});
}

void append_unit(const Window& window, std::int64_t unit, std::int64_t frame_units,
                 std::int64_t columns, std::int64_t merge, TowerOrder& order) {
  const std::int64_t row = window.top + unit / window.width;
  const std::int64_t column = window.left + unit % window.width;
  order.unit_order.push_back(frame_units + row * columns + column);
  for (std::int64_t y = 0; y < merge; ++y) {
    for (std::int64_t x = 0; x < merge; ++x) {
      order.patch_h.push_back(row * merge + y);
      order.patch_w.push_back(column * merge + x);
    }
  }
}

}  // namespace

std::vector<std::int64_t> block_begins(std::span<const BlockRun> runs) {
  std::vector<std::int64_t> begins;
  for (const BlockRun& run : runs) {
    for (std::int64_t i = 0; i < run.count; ++i) begins.push_back(run.first + i * run.length);
  }
  if (!runs.empty()) begins.push_back(runs.back().first + runs.back().count * runs.back().length);
  return begins;
}

TowerOrder tower_order(std::span<const ImageGrid> grids, std::int64_t merge,
                       std::int64_t window_tokens) {
  TowerOrder order;
  const std::int64_t unit_patches = merge * merge;
  std::int64_t frame_units = 0;  // units before the current frame
  for (const ImageGrid& grid : grids) {
    const std::int64_t rows = grid.h / merge;
    const std::int64_t columns = grid.w / merge;
    const auto windows = windows_of(rows, columns, window_tokens);
    for (std::int64_t t = 0; t < grid.t; ++t) {
      extend_run(order.frames, frame_units * unit_patches, grid.h * grid.w);
      for (const Window& window : windows) {
        const auto first = static_cast<std::int64_t>(order.unit_order.size());
        extend_run(order.windows, first * unit_patches, window.units() * unit_patches);
        for (std::int64_t unit = 0; unit < window.units(); ++unit)
          append_unit(window, unit, frame_units, columns, merge, order);
      }
      frame_units += rows * columns;
    }
  }
  order.unit_restore.resize(order.unit_order.size());
  for (std::size_t place = 0; place < order.unit_order.size(); ++place)
    order.unit_restore[static_cast<std::size_t>(order.unit_order[place])] =
        static_cast<std::int64_t>(place);
  return order;
}

}  // namespace evalcar::models
