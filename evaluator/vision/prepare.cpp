#include "evaluator/vision/prepare.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace evalcar::vision {
namespace {

constexpr double kMaxRatio = 200.0;
// What lmms-eval's chat wrapper leaves qwen_vl_utils at: its default patch of 14 and merge of 2
// whatever the checkpoint's processor has, and 4 to 16384 tokens a picture.
constexpr int kUtilsFactor = 14 * 2;
constexpr std::int64_t kUtilsMinPixels = 4LL * kUtilsFactor * kUtilsFactor;
constexpr std::int64_t kUtilsMaxPixels = 16384LL * kUtilsFactor * kUtilsFactor;

std::string size_text(int height, int width) {
  return std::to_string(width) + "x" + std::to_string(height);
}

// Python's round(): half to even, which is the default rounding mode of nearbyint.
std::int64_t round_to(int side, int factor) {
  return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(side) / factor)) * factor;
}
std::int64_t floor_to(double side, int factor) {
  return static_cast<std::int64_t>(std::floor(side / factor)) * factor;
}
std::int64_t ceil_to(double side, int factor) {
  return static_cast<std::int64_t>(std::ceil(side / factor)) * factor;
}

// `least` is the smallest side while rounding, `least_shrunk` the smallest when shrinking: that is
// where the two packages differ.
Result<Size> smart_size(int height, int width, int factor, std::int64_t min_pixels,
                        std::int64_t max_pixels, std::int64_t least, std::int64_t least_shrunk) {
  if (height <= 0 || width <= 0 || factor <= 0 || min_pixels <= 0 || max_pixels < min_pixels) {
    return make_error(ErrorCode::kInvalidArgument,
                      "size of a " + size_text(height, width) + " picture with factor " +
                          std::to_string(factor) + ", min_pixels " + std::to_string(min_pixels) +
                          ", max_pixels " + std::to_string(max_pixels) +
                          ": all must be positive and max_pixels at least min_pixels");
  }
  const double ratio = static_cast<double>(std::max(height, width)) / std::min(height, width);
  if (ratio > kMaxRatio) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a " + size_text(height, width) +
                          " picture: one side is over 200 times the other, which " +
                          "the Qwen-VL processors refuse");
  }
  std::int64_t h = std::max(least, round_to(height, factor));
  std::int64_t w = std::max(least, round_to(width, factor));
  const double area = static_cast<double>(height) * width;
  if (h * w > max_pixels) {
    const double beta = std::sqrt(area / static_cast<double>(max_pixels));
    h = std::max(least_shrunk, floor_to(height / beta, factor));
    w = std::max(least_shrunk, floor_to(width / beta, factor));
  } else if (h * w < min_pixels) {
    const double beta = std::sqrt(static_cast<double>(min_pixels) / area);
    h = ceil_to(height * beta, factor);
    w = ceil_to(width * beta, factor);
  }
  if (h <= 0 || w <= 0 || h > INT32_MAX || w > INT32_MAX) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a " + size_text(height, width) + " picture has no size in multiples of " +
                          std::to_string(factor) + " with " + std::to_string(min_pixels) + " to " +
                          std::to_string(max_pixels) + " pixels");
  }
  return Size{static_cast<int>(h), static_cast<int>(w)};
}

struct TwoSizes {
  Size first;   // after qwen_vl_utils
  Size second;  // after the processor
};

Result<TwoSizes> sizes_of(int height, int width, const ProcessorSettings& settings) {
  TwoSizes sizes;
  EVALCAR_ASSIGN_OR_RETURN(
      sizes.first, smart_resize(height, width, kUtilsFactor, kUtilsMinPixels, kUtilsMaxPixels));
  EVALCAR_ASSIGN_OR_RETURN(sizes.second,
                           processor_smart_resize(sizes.first.height, sizes.first.width,
                                                  settings.patch_size * settings.merge_size,
                                                  settings.min_pixels, settings.max_pixels));
  return sizes;
}

}  // namespace

Result<Size> smart_resize(int height, int width, int factor, std::int64_t min_pixels,
                          std::int64_t max_pixels) {
  return smart_size(height, width, factor, min_pixels, max_pixels, factor, 0);
}

Result<Size> processor_smart_resize(int height, int width, int factor, std::int64_t min_pixels,
                                    std::int64_t max_pixels) {
  return smart_size(height, width, factor, min_pixels, max_pixels, 0, factor);
}

Result<PreparedSize> prepared_size(int height, int width, const ProcessorSettings& settings) {
  EVALCAR_ASSIGN_OR_RETURN(const TwoSizes sizes, sizes_of(height, width, settings));
  return PreparedSize{1, sizes.second.height / settings.patch_size,
                      sizes.second.width / settings.patch_size};
}

Result<PreparedImage> prepare_image(const Image& image, const ProcessorSettings& settings,
                                    ResampleCode code) {
  EVALCAR_ASSIGN_OR_RETURN(const TwoSizes sizes, sizes_of(image.height, image.width, settings));
  EVALCAR_ASSIGN_OR_RETURN(
      Image resized,
      resize_bicubic(image, sizes.first.height, sizes.first.width, Resampler::kPillow, code));
  if (sizes.second != sizes.first) {
    EVALCAR_ASSIGN_OR_RETURN(
        resized, resize_bicubic(
                     resized, sizes.second.height, sizes.second.width,
                     settings.slow_processor ? Resampler::kPillow : Resampler::kTorchvision, code));
  }
  PreparedImage prepared;
  prepared.grid_h = sizes.second.height / settings.patch_size;
  prepared.grid_w = sizes.second.width / settings.patch_size;
  prepared.width = resized.width;
  prepared.height = resized.height;
  prepared.rgb = std::move(resized.rgb);
  return prepared;
}

}  // namespace evalcar::vision
