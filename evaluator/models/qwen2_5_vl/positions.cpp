#include "evaluator/models/qwen2_5_vl/positions.h"

#include <algorithm>
#include <string>

namespace evalcar::models::qwen2_5_vl {
namespace {

void append_image(const ImageGrid& grid, std::int64_t merge, PromptPositions& out) {
  const std::int64_t rows = grid.h / merge;
  const std::int64_t columns = grid.w / merge;
  for (std::int64_t t = 0; t < grid.t; ++t) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        out.axes[0].push_back(out.next + t);
        out.axes[1].push_back(out.next + row);
        out.axes[2].push_back(out.next + column);
      }
    }
  }
  out.next += std::max(rows, columns);
}

Error placeholder_error(std::size_t place, std::size_t image, std::int64_t expected) {
  return make_error(ErrorCode::kInvalidArgument,
                    "prompt: picture " + std::to_string(image) + " needs " +
                        std::to_string(expected) + " placeholder tokens from token " +
                        std::to_string(place) + " on, and they are not there");
}

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

Result<PromptPositions> prompt_positions(std::span<const std::int32_t> tokens,
                                         std::span<const ImageGrid> grids, int image_token,
                                         std::int64_t merge) {
  PromptPositions out;
  for (auto& axis : out.axes) axis.reserve(tokens.size());
  std::size_t image = 0;
  for (std::size_t i = 0; i < tokens.size();) {
    if (tokens[i] != image_token) {
      for (auto& axis : out.axes) axis.push_back(out.next);
      ++out.next;
      ++i;
      continue;
    }
    if (image == grids.size())
      return make_error(ErrorCode::kInvalidArgument,
                        "prompt: a picture's placeholder at token " + std::to_string(i) +
                            ", but only " + std::to_string(grids.size()) + " pictures are given");
    const std::int64_t count = grids[image].tokens(merge);
    const bool fits = count > 0 && static_cast<std::uint64_t>(count) <= tokens.size() - i;
    if (!fits || !std::ranges::all_of(tokens.subspan(i, static_cast<std::size_t>(count)),
                                      [&](std::int32_t id) { return id == image_token; }))
      return placeholder_error(i, image, count);
    out.images.push_back({static_cast<std::int64_t>(i), count});
    append_image(grids[image], merge, out);
    i += static_cast<std::size_t>(count);
    ++image;
  }
  if (image != grids.size())
    return make_error(ErrorCode::kInvalidArgument,
                      "prompt: " + std::to_string(grids.size()) + " pictures are given, but only " +
                          std::to_string(image) + " have placeholder tokens");
  return out;
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

}  // namespace evalcar::models::qwen2_5_vl
