#include "evaluator/vision/tiles.h"

#include <algorithm>
#include <cstring>

namespace evalcar::vision {
namespace {

/// Copies the picture, whose upper left corner is at (left, top) of the resolution, into the
/// squares that it crosses.
void spread(const Image& picture, int left, int top, int tile, int tile_columns,
            std::uint8_t* squares) {
  const std::size_t side = static_cast<std::size_t>(tile);
  for (int y = 0; y < picture.height; ++y) {
    const std::uint8_t* row = picture.rgb.data() + static_cast<std::size_t>(y) *
                                                       static_cast<std::size_t>(picture.width) * 3;
    const int below = top + y;
    for (int x = 0; x < picture.width;) {
      const int across = left + x;
      const int run = std::min(picture.width - x, tile - across % tile);
      const auto square =
          static_cast<std::size_t>(below / tile) * static_cast<std::size_t>(tile_columns) +
          static_cast<std::size_t>(across / tile);
      const std::size_t place = (square * side + static_cast<std::size_t>(below % tile)) * side +
                                static_cast<std::size_t>(across % tile);
      std::memcpy(squares + place * 3, row + static_cast<std::size_t>(x) * 3,
                  static_cast<std::size_t>(run) * 3);
      x += run;
    }
  }
}

}  // namespace

Result<PreparedImage> prepare_tiles(const Image& image, const ProcessorSettings& settings,
                                    ResampleCode code) {
  const Anyres& anyres = *settings.anyres;
  const ImageSize size{.width = image.width, .height = image.height};
  EVALCAR_ASSIGN_OR_RETURN(const AnyresGrid grid, anyres_grid(size, anyres));
  const Resampler resampler =
      settings.slow_processor ? Resampler::kPillow : Resampler::kTorchvision;
  EVALCAR_ASSIGN_OR_RETURN(const Image whole,
                           resize_bicubic(image, anyres.tile, anyres.tile, resampler, code));
  const ImageSize fitted = fitted_size(size, grid.resolution);
  EVALCAR_ASSIGN_OR_RETURN(const Image resized,
                           resize_bicubic(image, fitted.height, fitted.width, resampler, code));
  PreparedImage prepared;
  prepared.width = anyres.tile;
  prepared.height = static_cast<int>(grid.tiles()) * anyres.tile;
  prepared.rgb = whole.rgb;
  prepared.rgb.resize(static_cast<std::size_t>(prepared.width) *
                      static_cast<std::size_t>(prepared.height) * 3);  // black
  spread(resized, (grid.resolution.width - fitted.width) / 2,
         (grid.resolution.height - fitted.height) / 2, anyres.tile, grid.tile_columns,
         prepared.rgb.data() + whole.rgb.size());
  set_grid(prepared, settings);
  return prepared;
}

}  // namespace evalcar::vision
