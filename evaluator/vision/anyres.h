// The geometry of "anyres" (LLaVA-OneVision; Li et al. 2024, section 3.2; transformers 5.17's
// image_processing_utils and LlavaOnevisionProcessor): a tower that reads squares of one size is
// shown the whole picture as one square, and the picture as several squares in the best of a list
// of resolutions. Pure arithmetic, in the reference's order of floating-point operations. The
// processor's side (pixels, number of placeholders) and the model's (features) share it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evaluator/vision/image.h"
#include "store/base/result.h"

namespace evalcar::vision {

struct Anyres {
  int tile = 384;      ///< pixels per side of a square
  int side = 27;       ///< features per side of a square
  int most_tiles = 9;  ///< squares' worth of features that a picture may have, about
  std::vector<ImageSize> resolutions;  ///< multiples of tile; the order decides between equals

  bool operator==(const Anyres&) const = default;
};

/// How a picture is cut, and what of its features is kept. Rows and columns count from the upper
/// left corner of the resolution.
struct AnyresGrid {
  ImageSize resolution;            ///< the best one
  int tile_rows = 0;               ///< squares
  int tile_columns = 0;            ///< squares in a row
  int first_row = 0;               ///< of the features that show the picture, not its border
  int first_column = 0;            ///<
  int rows = 0;                    ///< of them
  int columns = 0;                 ///<
  int kept_rows = 0;               ///< after they are shrunk: at most rows
  int kept_columns = 0;            ///<
  std::int64_t base_features = 0;  ///< of the whole picture in one square

  std::int64_t tiles() const { return std::int64_t{1} + std::int64_t{tile_rows} * tile_columns; }
  bool shrunk() const { return kept_rows != rows || kept_columns != columns; }
  /// Base features, and each kept row with a newline behind it.
  std::int64_t tokens() const {
    return base_features + std::int64_t{kept_rows} * (std::int64_t{kept_columns} + 1);
  }
};

/// The grid of a picture of this (oriented) size. kInvalidArgument for a size that is not positive.
Result<AnyresGrid> anyres_grid(ImageSize picture, const Anyres& anyres);

/// The picture's size inside a resolution: as large as it fits, its sides' ratio kept
/// (get_patch_output_size).
ImageSize fitted_size(ImageSize picture, ImageSize resolution);

/// The list that transformers takes where a file has none: 1 to 6 squares of 384 by 1 to 6.
std::vector<ImageSize> usual_resolutions();

/// image_grid_pinpoints: a list of [height, width]. kCorruption unless it is one of 1 to 1,024,
/// each side a multiple of `tile` (else it is an error in transformers, too) and at most 64 times
/// it, 2^26 pixels together. `place` names file and key in messages.
Result<std::vector<ImageSize>> read_resolutions(const nlohmann::json& list, int tile,
                                                const std::string& place);

/// The N of "anyres_max_N". kUnsupported for another text, which transformers cannot read either.
Result<int> read_most_tiles(std::string_view aspect_ratio, const std::string& place);

}  // namespace evalcar::vision
