// Where the tokens of a prompt stand. Pure arithmetic, without libtorch.
//
// Every model has three axes: time, height, width. A text model, whose tokens stand in a line, has
// the same place on all three and turns by the first alone.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "store/base/result.h"

namespace evalcar::models {

/// A picture in patches: t frames or squares of h by w. How many tokens it has is the model's
/// matter (Model::image_tokens).
struct ImageGrid {
  std::int64_t t = 1;
  std::int64_t h = 0;
  std::int64_t w = 0;
  /// Of the picture as it was decoded, in pixels; 0 where it is not known.
  std::int64_t height = 0;
  std::int64_t width = 0;

  std::int64_t patches() const { return t * h * w; }
  bool operator==(const ImageGrid&) const = default;
};

/// A picture's placeholder tokens in a prompt: rows [first, first + count).
struct ImageSpan {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// The positions of a prompt's tokens on the axes time, height, width.
struct PromptPositions {
  std::array<std::vector<std::int64_t>, 3> axes;
  std::int64_t next = 0;          ///< of the first generated token, on all three axes
  std::vector<ImageSpan> images;  ///< in order of appearance
};

/// 0, 1, 2, … on all axes, without pictures.
PromptPositions line_positions(std::size_t tokens);

/// Where the placeholders stand of pictures that have `counts` tokens each, one picture after the
/// other; pictures may stand without anything between them. kInvalidArgument if the placeholders
/// are not exactly those.
Result<std::vector<ImageSpan>> image_spans(std::span<const std::int32_t> tokens,
                                           std::span<const std::int64_t> counts, int image_token);

/// Tokens of a picture whose patches are merged `merge` by `merge`. kInvalidArgument for a grid
/// that does not merge.
Result<std::int64_t> merged_tokens(const ImageGrid& grid, std::int64_t merge);

/// get_rope_index of transformers 5.17, for pictures: text counts on, a picture's tokens stand on
/// their grid, and the text after it starts behind the grid's longer side. kInvalidArgument if the
/// placeholders of `image_token` are not exactly those of `grids`.
Result<PromptPositions> mrope_positions(std::span<const std::int32_t> tokens,
                                        std::span<const ImageGrid> grids, int image_token,
                                        std::int64_t merge);

}  // namespace evalcar::models
