#include "evaluator/models/positions.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace evalcar::models {
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

}  // namespace

PromptPositions line_positions(std::size_t tokens) {
  PromptPositions out;
  for (auto& axis : out.axes) {
    axis.resize(tokens);
    std::iota(axis.begin(), axis.end(), std::int64_t{0});
  }
  out.next = static_cast<std::int64_t>(tokens);
  return out;
}

Result<std::vector<ImageSpan>> image_spans(std::span<const std::int32_t> tokens,
                                           std::span<const std::int64_t> counts, int image_token) {
  std::vector<ImageSpan> spans;
  for (std::size_t i = 0; i < tokens.size();) {
    if (tokens[i] != image_token) {
      ++i;
      continue;
    }
    const std::size_t image = spans.size();
    if (image == counts.size())
      return make_error(ErrorCode::kInvalidArgument,
                        "prompt: a picture's placeholder at token " + std::to_string(i) +
                            ", but only " + std::to_string(counts.size()) + " pictures are given");
    const std::int64_t count = counts[image];
    const bool fits = count > 0 && static_cast<std::uint64_t>(count) <= tokens.size() - i;
    if (!fits || !std::ranges::all_of(tokens.subspan(i, static_cast<std::size_t>(count)),
                                      [&](std::int32_t id) { return id == image_token; }))
      return placeholder_error(i, image, count);
    spans.push_back({static_cast<std::int64_t>(i), count});
    i += static_cast<std::size_t>(count);
  }
  if (spans.size() != counts.size())
    return make_error(ErrorCode::kInvalidArgument, "prompt: " + std::to_string(counts.size()) +
                                                       " pictures are given, but only " +
                                                       std::to_string(spans.size()) +
                                                       " have placeholder tokens");
  return spans;
}

Result<std::int64_t> merged_tokens(const ImageGrid& grid, std::int64_t merge) {
  if (grid.t < 1 || grid.h < 1 || grid.w < 1 || grid.h % merge != 0 || grid.w % merge != 0)
    return make_error(ErrorCode::kInvalidArgument,
                      "a grid of " + std::to_string(grid.t) + "x" + std::to_string(grid.h) + "x" +
                          std::to_string(grid.w) + " patches does not merge");
  return grid.patches() / (merge * merge);
}

Result<PromptPositions> mrope_positions(std::span<const std::int32_t> tokens,
                                        std::span<const ImageGrid> grids, int image_token,
                                        std::int64_t merge) {
  std::vector<std::int64_t> counts;
  for (const ImageGrid& grid : grids) {
    EVALCAR_ASSIGN_OR_RETURN(counts.emplace_back(), merged_tokens(grid, merge));
  }
  PromptPositions out;
  EVALCAR_ASSIGN_OR_RETURN(out.images, image_spans(tokens, counts, image_token));
  for (auto& axis : out.axes) axis.reserve(tokens.size());
  std::int64_t row = 0;
  const auto append_words = [&](std::int64_t end) {
    for (; row < end; ++row) {
      for (auto& axis : out.axes) axis.push_back(out.next);
      ++out.next;
    }
  };
  for (std::size_t image = 0; image < grids.size(); ++image) {
    append_words(out.images[image].first);
    append_image(grids[image], merge, out);
    row += out.images[image].count;
  }
  append_words(static_cast<std::int64_t>(tokens.size()));
  return out;
}

}  // namespace evalcar::models
