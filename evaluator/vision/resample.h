// Bicubic resizing of 8-bit RGB in the two ways that the reference pipeline uses, both exact.
//
// Both are the same machine: a separable filter (Keys' cubic, a = -0.5, widened when shrinking),
// whose weights are computed in double, normalised, and rounded to fixed point; then a horizontal
// pass to bytes and a vertical pass to bytes, each `clamp((sum(weight * pixel) + half) >> bits)`.
// The weights differ (Pillow keeps 22 bits, ATen's uint8 kernel as many as fit in int16), and
// Pillow 13.0 makes the vertical pass first for some sizes. The sums are integers, so any order of
// adding, hence any vector width, gives the same bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "evaluator/vision/image.h"
#include "store/base/result.h"

namespace evalcar::vision {

enum class Resampler {
  kPillow,       ///< PIL.Image.resize(…, BICUBIC) of an RGB image
  kTorchvision,  ///< torchvision's resize of a uint8 tensor on the CPU, bicubic, antialias=True
};

/// The weights of one axis. Output position i reads input positions first[i] … first[i] + count[i]
/// - 1 with weights[i * taps …], the rest of the row being zero.
struct ResampleAxis {
  int taps = 0;  ///< a multiple of 4, at least every count
  int bits = 0;  ///< a weight of 1.0 is 1 << bits
  std::vector<int> first;
  std::vector<int> count;
  std::vector<std::int32_t> weights;  ///< (output size, taps)
  /// The same as int16, for vector code: a weight w is high * 2^11 + low with low unsigned, or low
  /// alone (and no high) where all fit. low: (output size, taps); high: as low, or empty.
  std::vector<std::int16_t> low;
  std::vector<std::int16_t> high;
};
inline constexpr int kLowWeightBits = 11;

/// The axis from `in` to `out` pixels; both positive.
ResampleAxis make_axis(Resampler kind, int in, int out);

enum class ResampleCode {
  kFastest,  ///< AVX2 where the processor has it
  kPortable  ///< plain C++; the same bytes
};

/// `image` resized to (height, width). A pass whose size does not change is skipped; equal sizes
/// give a copy. kInvalidArgument for sizes that are not positive. Thread-safe.
Result<Image> resize_bicubic(const Image& image, int height, int width, Resampler kind,
                             ResampleCode code = ResampleCode::kFastest);

}  // namespace evalcar::vision
