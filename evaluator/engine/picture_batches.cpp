#include "evaluator/engine/picture_batches.h"

#include <array>

#include "evaluator/engine/picture_queue.h"

namespace evalcar::engine {

std::vector<PictureBatch> picture_batches(std::span<const std::size_t> indices,
                                          const ImageSource& images, std::int64_t most_patches) {
  std::vector<PictureBatch> batches;
  std::int64_t patches = 0;  // of the last one
  for (const std::size_t index : indices) {
    const std::int64_t more = patches_of(images.size_of(index));
    if (batches.empty() || patches + more > most_patches) {
      batches.emplace_back();
      patches = 0;
    }
    batches.back().push_back(index);
    patches += more;
  }
  return batches;
}

std::optional<Sha256Digest> batch_key(std::span<const std::size_t> batch, const ImageSource& images,
                                      const Sha256Digest& encoder) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(encoder)));
  for (const std::size_t index : batch) {
    const std::optional<Sha256Digest> content = images.content_of(index);
    if (!content) return std::nullopt;
    const vision::PreparedSize size = images.size_of(index);
    const std::array<int, 5> grid = {size.grid_t, size.grid_h, size.grid_w, size.picture.height,
                                     size.picture.width};
    hash.update(std::as_bytes(std::span(*content)));
    hash.update(std::as_bytes(std::span(grid)));
  }
  return hash.finish();
}

}  // namespace evalcar::engine
