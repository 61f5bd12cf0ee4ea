#include "evaluator/vision/prepare.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "evaluator/vision/tiles.h"

namespace evalcar::vision {
namespace {

constexpr double kMaxRatio = 200.0;
// What lmms-eval's chat wrappers leave qwen_vl_utils at, whatever the checkpoint's processor has:
// the family's patch and a merge of 2, and 4 to 16384 tokens a picture.
constexpr int kUtilsMerge = 2;
constexpr int kUtilsFirstPatch = 14;  // Sizing::kUtilsThenProcessor
constexpr int kUtilsAlonePatch = 16;  // Sizing::kUtils

struct UtilsRule {
  int factor;
  std::int64_t min_pixels;
  std::int64_t max_pixels;
};
constexpr UtilsRule utils_rule(int patch) {
  const int factor = patch * kUtilsMerge;
  return {factor, std::int64_t{4} * factor * factor, std::int64_t{16384} * factor * factor};
}

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
  std::optional<Size> first;  // after qwen_vl_utils, where it resizes
  Size last;                  // after the processor, or the same
};

Result<Size> size_by_processor(int height, int width, const ProcessorSettings& settings) {
  return processor_smart_resize(height, width, settings.patch_size * settings.merge_size,
                                settings.min_pixels, settings.max_pixels);
}

Result<TwoSizes> sizes_of(int height, int width, const ProcessorSettings& settings) {
  TwoSizes sizes;
  if (settings.sizing == Sizing::kProcessor) {
    EVALCAR_ASSIGN_OR_RETURN(sizes.last, size_by_processor(height, width, settings));
    return sizes;
  }
  const bool alone = settings.sizing == Sizing::kUtils;
  UtilsRule rule = utils_rule(alone ? kUtilsAlonePatch : kUtilsFirstPatch);
  if (alone) {
    rule.min_pixels = settings.min_pixels;
    rule.max_pixels = settings.max_pixels;
  }
  EVALCAR_ASSIGN_OR_RETURN(
      sizes.first, smart_resize(height, width, rule.factor, rule.min_pixels, rule.max_pixels));
  sizes.last = *sizes.first;
  if (!alone) {
    EVALCAR_ASSIGN_OR_RETURN(sizes.last,
                             size_by_processor(sizes.last.height, sizes.last.width, settings));
  }
  const int unit = settings.patch_size * settings.merge_size;
  if (sizes.last.height % unit != 0 || sizes.last.width % unit != 0)
    return make_error(
        ErrorCode::kCorruption,
        "the processor cuts units of " + std::to_string(unit) +
            " pixels, and lmms-eval resizes pictures of this family to multiples of " +
            std::to_string(rule.factor));
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

PixelLimits utils_limits() {
  const UtilsRule rule = utils_rule(kUtilsAlonePatch);
  return {rule.min_pixels, rule.max_pixels};
}

Result<PreparedSize> prepared_size(int height, int width, const ProcessorSettings& settings) {
  const ImageSize picture{.width = width, .height = height};
  if (settings.anyres) {
    EVALCAR_ASSIGN_OR_RETURN(const AnyresGrid grid, anyres_grid(picture, *settings.anyres));
    const int side = settings.anyres->tile / settings.patch_size;
    return PreparedSize{.grid_t = static_cast<int>(grid.tiles()),
                        .grid_h = side,
                        .grid_w = side,
                        .tokens = grid.tokens(),
                        .picture = picture};
  }
  EVALCAR_ASSIGN_OR_RETURN(const TwoSizes sizes, sizes_of(height, width, settings));
  const int rows = sizes.last.height / settings.patch_size;
  const int columns = sizes.last.width / settings.patch_size;
  const std::int64_t unit = std::int64_t{settings.merge_size} * settings.merge_size;
  return PreparedSize{.grid_h = rows,
                      .grid_w = columns,
                      .tokens = std::int64_t{rows} * columns / unit,
                      .picture = picture};
}

ImageSize pixels_of(const PreparedSize& size, const ProcessorSettings& settings) {
  if (settings.anyres)
    return {.width = settings.anyres->tile, .height = size.grid_t * settings.anyres->tile};
  return {.width = size.grid_w * settings.patch_size, .height = size.grid_h * settings.patch_size};
}

void set_grid(PreparedImage& image, const ProcessorSettings& settings) {
  const int height = settings.anyres ? settings.anyres->tile : image.height;
  image.grid_t = image.height / height;
  image.grid_h = height / settings.patch_size;
  image.grid_w = image.width / settings.patch_size;
}

Result<PreparedImage> prepare_image(const Image& image, const ProcessorSettings& settings,
                                    ResampleCode code) {
  if (settings.anyres) return prepare_tiles(image, settings, code);
  EVALCAR_ASSIGN_OR_RETURN(const TwoSizes sizes, sizes_of(image.height, image.width, settings));
  Image resized;
  const Image* source = &image;
  if (sizes.first) {
    EVALCAR_ASSIGN_OR_RETURN(resized, resize_bicubic(image, sizes.first->height, sizes.first->width,
                                                     Resampler::kPillow, code));
    source = &resized;
  }
  if (!sizes.first || sizes.last != *sizes.first) {
    EVALCAR_ASSIGN_OR_RETURN(
        resized, resize_bicubic(
                     *source, sizes.last.height, sizes.last.width,
                     settings.slow_processor ? Resampler::kPillow : Resampler::kTorchvision, code));
  }
  PreparedImage prepared;
  prepared.width = resized.width;
  prepared.height = resized.height;
  prepared.rgb = std::move(resized.rgb);
  set_grid(prepared, settings);
  return prepared;
}

}  // namespace evalcar::vision
