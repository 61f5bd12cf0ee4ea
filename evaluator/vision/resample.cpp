#include "evaluator/vision/resample.h"

#include <algorithm>
#include <new>
#include <string>

#include "evaluator/vision/resample_passes.h"

namespace evalcar::vision {
namespace {

std::uint8_t rounded_byte(std::int32_t sum, int bits) {
  return static_cast<std::uint8_t>(std::clamp(sum >> bits, 0, 255));
}

// Pillow 13.0 makes the vertical pass first where that takes more rows away than twice the columns
// that the horizontal one would (older Pillows: always horizontal first). The bytes between the
// passes are rounded, so the order shows. torchvision's kernel is always horizontal first.
bool vertical_first(Resampler kind, const Image& from, int height, int width) {
  const std::int64_t rows_off = std::int64_t{from.height} - height;
  const std::int64_t columns_off = std::int64_t{from.width} - width;
  return kind == Resampler::kPillow && rows_off > 0 && rows_off > 2 * columns_off;
}

using Pass = void (*)(const ResampleAxis&, const PassInput&);
struct Passes {
  Pass horizontal = horizontal_pass_portable;
  Pass vertical = vertical_pass_portable;
};

Passes choose_passes(ResampleCode code) {
#if defined(__x86_64__)
  if (code == ResampleCode::kFastest && cpu_has_avx2())
    return {horizontal_pass_avx2, vertical_pass_avx2};
#endif
  (void)code;
  return {};
}

Image resize_width(const Image& image, int width, Resampler kind, const Passes& passes) {
  Image result;
  result.width = width;
  result.height = image.height;
  result.rgb.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(image.height) * 3);
  passes.horizontal(make_axis(kind, image.width, width),
                    {image.rgb.data(), result.rgb.data(), image.height, image.width});
  return result;
}

Image resize_height(const Image& image, int height, Resampler kind, const Passes& passes) {
  Image result;
  result.width = image.width;
  result.height = height;
  result.rgb.resize(static_cast<std::size_t>(image.width) * static_cast<std::size_t>(height) * 3);
  passes.vertical(make_axis(kind, image.height, height),
                  {image.rgb.data(), result.rgb.data(), image.height, image.width});
  return result;
}

}  // namespace

void horizontal_pass_portable(const ResampleAxis& axis, const PassInput& pass) {
  const std::size_t out_width = axis.first.size();
  const std::int32_t half = 1 << (axis.bits - 1);
  for (std::int64_t row = 0; row < pass.rows; ++row) {
    const std::uint8_t* in = pass.in + row * pass.in_width * 3;
    std::uint8_t* out = pass.out + row * static_cast<std::int64_t>(out_width) * 3;
    for (std::size_t x = 0; x < out_width; ++x, out += 3) {
      const std::int32_t* weight = axis.weights.data() + x * static_cast<std::size_t>(axis.taps);
      const std::uint8_t* pixel = in + std::int64_t{axis.first[x]} * 3;
      std::int32_t sum[3] = {half, half, half};
      for (int j = 0; j < axis.count[x]; ++j, pixel += 3) {
        for (int c = 0; c < 3; ++c) sum[c] += weight[j] * pixel[c];
      }
      for (int c = 0; c < 3; ++c) out[c] = rounded_byte(sum[c], axis.bits);
    }
  }
}

void vertical_pass_portable(const ResampleAxis& axis, const PassInput& pass) {
  const std::int64_t stride = pass.in_width * 3;
  const std::int32_t half = 1 << (axis.bits - 1);
  std::vector<std::int32_t> sums(static_cast<std::size_t>(stride));
  for (std::size_t y = 0; y < axis.first.size(); ++y) {
    std::fill(sums.begin(), sums.end(), half);
    const std::int32_t* weight = axis.weights.data() + y * static_cast<std::size_t>(axis.taps);
    for (int j = 0; j < axis.count[y]; ++j) {
      const std::uint8_t* in = pass.in + (axis.first[y] + j) * stride;
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += weight[j] * in[i];
    }
    std::uint8_t* out = pass.out + static_cast<std::int64_t>(y) * stride;
    for (std::size_t i = 0; i < sums.size(); ++i) out[i] = rounded_byte(sums[i], axis.bits);
  }
}

Result<Image> resize_bicubic(const Image& image, int height, int width, Resampler kind,
                             ResampleCode code) {
  if (height <= 0 || width <= 0 || image.height <= 0 || image.width <= 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "resize from " + std::to_string(image.width) + "x" +
                          std::to_string(image.height) + " to " + std::to_string(width) + "x" +
                          std::to_string(height) + ": both sizes must be positive");
  }
  const Passes passes = choose_passes(code);
  try {
    if (width == image.width && height == image.height) return image;
    if (width == image.width) return resize_height(image, height, kind, passes);
    if (height == image.height) return resize_width(image, width, kind, passes);
    if (vertical_first(kind, image, height, width))
      return resize_width(resize_height(image, height, kind, passes), width, kind, passes);
    return resize_height(resize_width(image, width, kind, passes), height, kind, passes);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kUnavailable, "resize to " + std::to_string(width) + "x" +
                                                   std::to_string(height) + ": out of memory");
  }
}

}  // namespace evalcar::vision
