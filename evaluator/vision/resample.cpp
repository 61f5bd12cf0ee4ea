#include "evaluator/vision/resample.h"

#include <algorithm>
#include <cstring>
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

struct Passes {
  decltype(&horizontal_pass_portable) horizontal = horizontal_pass_portable;
  decltype(&vertical_pass_portable) vertical = vertical_pass_portable;
};

Passes choose_passes(ResampleCode code) {
#if defined(__x86_64__)
  if (code == ResampleCode::kFastest && cpu_has_avx2())
    return {horizontal_pass_avx2, vertical_pass_avx2};
#endif
  (void)code;
  return {};
}

Image image_of_size(int height, int width) {
  Image image{width, height, {}};
  image.rgb.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3);
  return image;
}

Image resize_width(const Image& image, int width, Resampler kind, const Passes& passes) {
  Image result = image_of_size(image.height, width);
  passes.horizontal(make_axis(kind, image.width, width),
                    {image.rgb.data(), image.height, image.width, 0}, result.rgb.data());
  return result;
}

Image resize_height(const Image& image, int height, Resampler kind, const Passes& passes) {
  Image result = image_of_size(height, image.width);
  passes.vertical(make_axis(kind, image.height, height),
                  {image.rgb.data(), image.height, image.width, 0}, 0,
                  static_cast<std::size_t>(height), result.rgb.data());
  return result;
}

// Horizontal, then vertical, a band of output rows at a time: the rows between the passes stay in
// the cache. Rows that the next band needs again are kept.
Image resize_in_bands(const Image& image, int height, int width, Resampler kind,
                      const Passes& passes) {
  constexpr std::size_t kBandRows = 16;
  const ResampleAxis across = make_axis(kind, image.width, width);
  const ResampleAxis down = make_axis(kind, image.height, height);
  const std::int64_t in_stride = std::int64_t{image.width} * 3;
  const std::int64_t stride = std::int64_t{width} * 3;
  Image result = image_of_size(height, width);
  std::vector<std::uint8_t>
      rows;  // of the input from `first` to before `last`, narrowed or widened
  std::int64_t first = 0;
  std::int64_t last = 0;
  const auto out_rows = static_cast<std::size_t>(height);
  for (std::size_t begin = 0; begin < out_rows; begin += kBandRows) {
    const std::size_t end = std::min(begin + kBandRows, out_rows);
    const std::int64_t need_first = down.first[begin];
    const std::int64_t need_last = down.first[end - 1] + down.count[end - 1];
    const std::int64_t kept = std::max<std::int64_t>(last - need_first, 0);
    if (kept > 0) {
      std::memmove(rows.data(), rows.data() + (need_first - first) * stride,
                   static_cast<std::size_t>(kept * stride));
    }
    first = need_first;
    last = need_last;
    rows.resize(std::max(rows.size(), static_cast<std::size_t>((last - first) * stride)));
    passes.horizontal(across,
                      {image.rgb.data() + (first + kept) * in_stride, last - first - kept,
                       image.width, first + kept},
                      rows.data() + kept * stride);
    passes.vertical(down, {rows.data(), last - first, width, first}, begin, end,
                    result.rgb.data() + static_cast<std::int64_t>(begin) * stride);
  }
  return result;
}

}  // namespace

void horizontal_pass_portable(const ResampleAxis& axis, const PassInput& input, std::uint8_t* out) {
  const std::int32_t half = 1 << (axis.bits - 1);
  for (std::int64_t row = 0; row < input.rows; ++row) {
    const std::uint8_t* in = input.in + row * input.in_width * 3;
    for (std::size_t x = 0; x < axis.first.size(); ++x, out += 3) {
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

void vertical_pass_portable(const ResampleAxis& axis, const PassInput& input, std::size_t begin,
                            std::size_t end, std::uint8_t* out) {
  const std::int64_t stride = input.in_width * 3;
  const std::int32_t half = 1 << (axis.bits - 1);
  std::vector<std::int32_t> sums(static_cast<std::size_t>(stride));
  for (std::size_t y = begin; y < end; ++y, out += stride) {
    std::fill(sums.begin(), sums.end(), half);
    const std::int32_t* weight = axis.weights.data() + y * static_cast<std::size_t>(axis.taps);
    for (int j = 0; j < axis.count[y]; ++j) {
      const std::uint8_t* in = input.in + (axis.first[y] + j - input.first_row) * stride;
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += weight[j] * in[i];
    }
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
    return resize_in_bands(image, height, width, kind, passes);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kUnavailable, "resize to " + std::to_string(width) + "x" +
                                                   std::to_string(height) + ": out of memory");
  }
}

}  // namespace evalcar::vision
