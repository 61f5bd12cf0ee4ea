// The order in which a vision tower takes the patches of a batch of pictures: window by window.
// With windows larger than any picture it is the order of the processor. Pure arithmetic, without
// libtorch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evaluator/models/positions.h"

namespace evalcar::models {

/// A run of equally long attention blocks: rows [first, first + count · length).
struct BlockRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t length = 0;  ///< patches in a block
};

/// The first row of each block of `runs`, which follow one another, and where the last one ends.
std::vector<std::int64_t> block_begins(std::span<const BlockRun> runs);

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

}  // namespace evalcar::models
