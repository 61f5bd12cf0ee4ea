// Where each token and patch stands: mRoPE positions of a prompt, and the order of the vision
// tower's windows. Pure arithmetic, without libtorch.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "store/base/result.h"

namespace evalcar::models {

/// A picture in patches. t is 1 for a still picture; h and w are multiples of the merge size.
struct ImageGrid {
  std::int64_t t = 1;
  std::int64_t h = 0;
  std::int64_t w = 0;

  std::int64_t patches() const { return t * h * w; }
  std::int64_t tokens(std::int64_t merge) const { return patches() / (merge * merge); }
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

}  // namespace evalcar::models

namespace evalcar::models::qwen2_5_vl {

/// get_rope_index of transformers 5.17, for pictures: text counts on, a picture's tokens stand on
/// their grid, and the text after it starts behind the grid's longer side. kInvalidArgument if the
/// placeholders of `image_token` are not exactly those of `grids`.
Result<PromptPositions> prompt_positions(std::span<const std::int32_t> tokens,
                                         std::span<const ImageGrid> grids, int image_token,
                                         std::int64_t merge);

/// A run of equally long attention blocks: rows [first, first + count · length).
struct BlockRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t length = 0;  ///< patches in a block
};

/// How the tower orders a batch of pictures.
struct TowerOrder {
  std::vector<std::int64_t> unit_order;    ///< (tokens): source unit (merge² patches) of each place
  std::vector<std::int64_t> unit_restore;  ///< (tokens): its inverse
  std::vector<std::int64_t> patch_h;       ///< (patches): row of each patch, in the order of places
  std::vector<std::int64_t> patch_w;       ///< (patches): column
  std::vector<BlockRun> windows;           ///< window attention
  std::vector<BlockRun> frames;            ///< full attention: one block per frame
};

/// Units are put window by window; within a picture, windows of equal size stand together, so that
/// each size is one batched attention. (transformers keeps raster order of windows; the order of
/// windows is free, because every unit carries its own position.)
TowerOrder tower_order(std::span<const ImageGrid> grids, std::int64_t merge,
                       std::int64_t window_tokens);

}  // namespace evalcar::models::qwen2_5_vl
