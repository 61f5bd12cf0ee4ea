// Which pictures go through the vision tower together, and what such a batch is known by. Without
// libtorch.
//
// What stands beside a picture changes the last bits of its encoding: a product of more rows adds
// up in another order. So it is whole batches that are kept for the next checkpoint
// (encoded_pictures.h) and asked for again: what is found is what the tower would make of just that
// batch, and no answer depends on whether something was found.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "evaluator/engine/engine.h"
#include "store/base/hash.h"

namespace evalcar::engine {

/// Indices into the ImageSource, in the order of their rows.
using PictureBatch = std::vector<std::size_t>;

/// Cuts `indices` in their order into batches of at most `most_patches` patches; a picture of more
/// is a batch of its own.
std::vector<PictureBatch> picture_batches(std::span<const std::size_t> indices,
                                          const ImageSource& images, std::int64_t most_patches);

/// Names what the tower makes of a batch: `encoder` stands for all that this follows from beside
/// the pictures. Absent where the source does not know the content of one.
std::optional<Sha256Digest> batch_key(std::span<const std::size_t> batch, const ImageSource& images,
                                      const Sha256Digest& encoder);

}  // namespace evalcar::engine
