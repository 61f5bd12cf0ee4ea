// From a decoded picture to what the vision towers read, with the sizes and pixels that lmms-eval
// 0.7.3's chat path of the family gives them: qwen_vl_utils' smart size by Pillow's bicubic, the
// processor's by its own resize, or one after the other; or squares of one size (Sizing).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evaluator/vision/anyres.h"
#include "evaluator/vision/image.h"
#include "evaluator/vision/resample.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::vision {

/// Who resizes a picture, and within which limits.
enum class Sizing {
  /// qwen_vl_utils for patches of 14 pixels with its own limits, then the processor with
  /// min_pixels and max_pixels: lmms-eval's qwen2_5_vl.
  kUtilsThenProcessor,
  /// qwen_vl_utils alone, for patches of 16 pixels: lmms-eval's qwen3_vl, which switches the
  /// processor's resize off, so that the limits are the package's own.
  kUtils,
  /// The processor alone, with min_pixels and max_pixels: lmms-eval's huggingface.
  kProcessor,
  /// LlavaOnevisionImageProcessor: squares of one size, in the best of its resolutions: lmms-eval's
  /// llava_hf. There are no limits of pixels.
  kAnyres,
};

/// What preprocessor_config.json (4.x) or processor_config.json (5.x) and the user's settings say.
struct ProcessorSettings {
  int patch_size = 14;
  int merge_size = 2;
  int temporal_patch_size = 2;
  std::array<double, 3> image_mean = {0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> image_std = {0.26862954, 0.26130258, 0.27577711};
  double rescale_factor = 1.0 / 255.0;
  Sizing sizing = Sizing::kUtilsThenProcessor;
  std::int64_t min_pixels = 200704;  ///< of the last resize
  std::int64_t max_pixels = 1605632;
  bool slow_processor =
      false;  ///< resize and arithmetic of the Pillow processor (transformers' backend="pil")
  std::optional<Anyres> anyres = {};  ///< of Sizing::kAnyres, and of no other
};

/// All of them as a text: equal texts, equal patches of a picture.
std::string settings_text(const ProcessorSettings& settings);

/// Who resizes, and the limits that the caller has; absent ones are those that the family's wrapper
/// leaves in force: qwen_vl_utils' own (kUtils), the folder's (kProcessor).
struct PixelRule {
  Sizing sizing = Sizing::kUtilsThenProcessor;
  std::optional<std::int64_t> min_pixels = 200704;
  std::optional<std::int64_t> max_pixels = 1605632;
  /// Of the model's tower: what a processor of Sizing::kAnyres does not say.
  int patch_size = 14;
};

/// Reads the settings from a checkpoint folder as transformers 5.17 does: `image_processor` of
/// processor_config.json (5.x), else preprocessor_config.json (4.x), absent keys taking the
/// processor's defaults; the pixel limits are those of `rule`.
/// slow_processor is false whatever class the folder names: transformers 5.17 loads the torchvision
/// backend for all of Qwen2VLImageProcessor, …Fast and …Pil, and so of
/// LlavaOnevisionImageProcessor. For Sizing::kAnyres processor_config.json says what the processor
/// counts tokens by. kNotFound naming both files if neither is there; kCorruption for a file that
/// is not what its place asks for; kUnsupported for a processor that is not the family's or a step
/// switched off; kInvalidArgument for the limits.
Result<ProcessorSettings> load_processor_settings(const FileSystem& files, const std::string& dir,
                                                  const PixelRule& rule);

/// A picture ready for the tower. rgb: (height, width, 3) uint8: grid_t squares or pictures below
/// each other, of grid_h by grid_w patches each; what a square's side has beyond whole patches is
/// not read.
struct PreparedImage {
  int grid_t = 1;
  int grid_h = 0;  ///< patches; a multiple of merge_size
  int grid_w = 0;
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> rgb;
};

/// qwen_vl_utils' own limits under Sizing::kUtils: 4 to 16384 tokens.
struct PixelLimits {
  std::int64_t min_pixels = 0;
  std::int64_t max_pixels = 0;
};
PixelLimits utils_limits();

/// The grid that prepare_image() will give a picture of this (oriented) size, without its pixels.
struct PreparedSize {
  int grid_t = 1;
  int grid_h = 0;
  int grid_w = 0;
  std::int64_t tokens = 0;  ///< placeholders in the prompt, as the family's processor counts them
  ImageSize picture = {};   ///< before it was resized
};
Result<PreparedSize> prepared_size(int height, int width, const ProcessorSettings& settings);

/// Width and height of such a picture's PreparedImage::rgb.
ImageSize pixels_of(const PreparedSize& size, const ProcessorSettings& settings);
/// Sets the grid of an image whose width and height are set: the reverse.
void set_grid(PreparedImage& image, const ProcessorSettings& settings);

/// The pixels for that grid. kInvalidArgument if the sides' ratio is over 200 before or after the
/// first resize (an error in the reference too). Thread-safe.
Result<PreparedImage> prepare_image(const Image& image, const ProcessorSettings& settings,
                                    ResampleCode code = ResampleCode::kFastest);

/// Rounded (height, width), multiples of `factor`, with min_pixels <= area <= max_pixels where the
/// ratio allows: smart_resize of qwen_vl_utils 0.0.14, with Python's round-half-to-even.
/// kInvalidArgument if one side is over 200 times the other, or the size has no positive multiple.
struct Size {
  int height = 0;
  int width = 0;
  bool operator==(const Size&) const = default;
};
Result<Size> smart_resize(int height, int width, int factor, std::int64_t min_pixels,
                          std::int64_t max_pixels);

/// smart_resize of transformers 5.17's Qwen2-VL processor, which differs where a side is shorter
/// than half the factor.
Result<Size> processor_smart_resize(int height, int width, int factor, std::int64_t min_pixels,
                                    std::int64_t max_pixels);

/// The tower's input: patches (grid_t·grid_h·grid_w, 3·patch·patch) float32, row-major, in the
/// processor's order (squares one after the other, merge windows first), normalised in float32 as
/// the fast processor does it (mean and std multiplied by 255 first), or as the slow one does it.
/// One frame: the processor repeats a still picture temporal_patch_size times, which the tower's
/// embedding takes into account. `out` must hold exactly that many floats. Thread-safe.
void write_patches(const PreparedImage& image, const ProcessorSettings& settings, float* out);

}  // namespace evalcar::vision
