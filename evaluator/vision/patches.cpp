// From pixels to the tower's input. A normalised value depends on its byte and channel alone, so
// the arithmetic of the processors is done once for each of the 3 * 256 bytes, in their order and
// precision, and the rest is moving.
#include <array>

#include "evaluator/vision/prepare.h"

namespace evalcar::vision {
namespace {

using ChannelTables = std::array<std::array<float, 256>, 3>;

// TorchvisionBackend.rescale_and_normalize: float32 throughout, mean and std scaled first.
void fill_fast(const ProcessorSettings& settings, ChannelTables& tables) {
  const auto inverse = static_cast<float>(1.0 / settings.rescale_factor);
  for (std::size_t c = 0; c < 3; ++c) {
    const float mean = static_cast<float>(settings.image_mean[c]) * inverse;
    const float deviation = static_cast<float>(settings.image_std[c]) * inverse;
    for (std::size_t v = 0; v < 256; ++v) tables[c][v] = (static_cast<float>(v) - mean) / deviation;
  }
}

// PilBackend: rescaled in float64, cast to float32, normalised in float32.
void fill_slow(const ProcessorSettings& settings, ChannelTables& tables) {
  for (std::size_t c = 0; c < 3; ++c) {
    const auto mean = static_cast<float>(settings.image_mean[c]);
    const auto deviation = static_cast<float>(settings.image_std[c]);
    for (std::size_t v = 0; v < 256; ++v) {
      const auto rescaled = static_cast<float>(static_cast<double>(v) * settings.rescale_factor);
      tables[c][v] = (rescaled - mean) / deviation;
    }
  }
}

}  // namespace

void write_patches(const PreparedImage& image, const ProcessorSettings& settings, float* out) {
  ChannelTables tables;
  if (settings.slow_processor)
    fill_slow(settings, tables);
  else
    fill_fast(settings, tables);

  const auto patch = static_cast<std::size_t>(settings.patch_size);
  const auto merge = static_cast<std::size_t>(settings.merge_size);
  const std::size_t plane = patch * patch;
  const std::size_t stride = static_cast<std::size_t>(image.width) * 3;
  const auto grid_h = static_cast<std::size_t>(image.grid_h);
  const auto grid_w = static_cast<std::size_t>(image.grid_w);

  // One patch: (3 channels, patch, patch).
  const auto write_patch = [&](const std::uint8_t* corner) {
    for (std::size_t y = 0; y < patch; ++y) {
      const std::uint8_t* row = corner + y * stride;
      float* red = out + y * patch;
      float* green = red + plane;
      float* blue = green + plane;
      for (std::size_t x = 0; x < patch; ++x, row += 3) {
        red[x] = tables[0][row[0]];
        green[x] = tables[1][row[1]];
        blue[x] = tables[2][row[2]];
      }
    }
    out += 3 * plane;
  };

  // Merge windows in reading order, the patches of a window in reading order.
  const auto write_square = [&](const std::uint8_t* first) {
    for (std::size_t window_y = 0; window_y < grid_h; window_y += merge) {
      for (std::size_t window_x = 0; window_x < grid_w; window_x += merge) {
        for (std::size_t y = window_y; y < window_y + merge; ++y) {
          for (std::size_t x = window_x; x < window_x + merge; ++x)
            write_patch(first + y * patch * stride + x * patch * 3);
        }
      }
    }
  };
  const auto squares = static_cast<std::size_t>(image.grid_t);
  const std::size_t rows = static_cast<std::size_t>(image.height) / squares;
  for (std::size_t i = 0; i < squares; ++i) write_square(image.rgb.data() + i * rows * stride);
}

}  // namespace evalcar::vision
