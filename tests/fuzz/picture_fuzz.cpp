// A picture file from a data set: whatever it holds, it decodes to as many pixels as it says, with
// the size that the header alone gives, or to an error; and then it is resized without harm.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "evaluator/vision/image.h"
#include "evaluator/vision/resample.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace evalcar::vision;
  // Small pictures are as good for finding faults, and quick.
  const DecodeLimits limits{.max_pixels = 1 << 18};
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto image = decode_image(bytes, "fuzz", limits);
  const auto header = read_image_size(bytes, "fuzz", limits);
  if (!image.has_value()) return 0;
  const auto pixels =
      static_cast<std::size_t>(image->width) * static_cast<std::size_t>(image->height);
  if (!header.has_value() || header->width != image->width || header->height != image->height ||
      image->rgb.size() != pixels * 3) {
    std::abort();
  }
  if (pixels > 4096) return 0;
  const auto fast =
      resize_bicubic(image.value(), 28, 56, Resampler::kPillow, ResampleCode::kFastest);
  const auto plain =
      resize_bicubic(image.value(), 28, 56, Resampler::kPillow, ResampleCode::kPortable);
  if (!fast.has_value() || !plain.has_value() || fast->rgb != plain->rgb) std::abort();
  return 0;
}
