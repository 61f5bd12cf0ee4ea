// The weights of one axis, operation by operation as the two references compute them (Pillow 13.0:
// src/libImaging/Resample.c, precompute_coeffs and normalize_coeffs_8bpc; PyTorch 2.11:
// aten/src/ATen/native/cpu/UpSampleKernel.cpp, HelperInterpBase). This file is compiled without
// fused multiply-add: a last-bit difference in a double could round a weight the other way.
#include <algorithm>
#include <cmath>

#include "evaluator/vision/resample.h"

namespace evalcar::vision {
namespace {

constexpr double kCubicA = -0.5;
constexpr double kCubicSupport = 2.0;

// Pillow's order of operations.
double pillow_cubic(double x) {
  x = std::abs(x);
  if (x < 1.0) return ((kCubicA + 2.0) * x - (kCubicA + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kCubicA;
  return 0.0;
}

// ATen's order of operations (cubic_convolution1 and 2).
double aten_cubic(double x) {
  x = std::abs(x);
  if (x < 1.0) return ((kCubicA + 2) * x - (kCubicA + 3)) * x * x + 1;
  if (x < 2.0) return ((kCubicA * x - 5 * kCubicA) * x + 8 * kCubicA) * x - 4 * kCubicA;
  return 0.0;
}

struct RealWeights {
  std::vector<double> weights;  // (out, taps)
  double largest = 0.0;
};

template <typename Filter>
RealWeights real_weights(int in, int out, Filter filter, ResampleAxis& axis) {
  const double scale = static_cast<double>(in) / out;
  const double filter_scale = std::max(scale, 1.0);
  const double support = kCubicSupport * filter_scale;
  const double inverse = 1.0 / filter_scale;
  const int max_count = static_cast<int>(std::ceil(support)) * 2 + 1;
  axis.taps = (max_count + 3) / 4 * 4;
  const auto taps = static_cast<std::size_t>(axis.taps);
  axis.first.resize(static_cast<std::size_t>(out));
  axis.count.resize(static_cast<std::size_t>(out));
  RealWeights real;
  real.weights.assign(static_cast<std::size_t>(out) * taps, 0.0);
  for (int i = 0; i < out; ++i) {
    const double center = scale * (i + 0.5);
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int count =
        std::clamp(std::min(static_cast<int>(center + support + 0.5), in) - first, 0, max_count);
    double* row = real.weights.data() + static_cast<std::size_t>(i) * taps;
    double total = 0.0;
    for (int j = 0; j < count; ++j) {
      row[j] = filter((j + first - center + 0.5) * inverse);
      total += row[j];
    }
    if (total != 0.0) {
      for (int j = 0; j < count; ++j) {
        row[j] /= total;
        real.largest = std::max(real.largest, row[j]);
      }
    }
    axis.first[static_cast<std::size_t>(i)] = first;
    axis.count[static_cast<std::size_t>(i)] = count;
  }
  return real;
}

// ATen's precision: the most bits with which the largest weight still fits in int16, at most 22.
int int16_bits(double largest) {
  int bits = 0;
  for (; bits < 22; ++bits) {
    const int next = static_cast<int>(0.5 + largest * (1 << (bits + 1)));
    if (next >= (1 << 15)) break;
  }
  return bits;
}

void split_weights(ResampleAxis& axis) {
  const auto fits = [](std::int32_t w) { return w >= INT16_MIN && w <= INT16_MAX; };
  const bool split = !std::all_of(axis.weights.begin(), axis.weights.end(), fits);
  axis.low.reserve(axis.weights.size());
  if (split) axis.high.reserve(axis.weights.size());
  for (const std::int32_t w : axis.weights) {
    axis.low.push_back(static_cast<std::int16_t>(split ? w & ((1 << kLowWeightBits) - 1) : w));
    if (split) axis.high.push_back(static_cast<std::int16_t>(w >> kLowWeightBits));
  }
}

}  // namespace

ResampleAxis make_axis(Resampler kind, int in, int out) {
  ResampleAxis axis;
  const RealWeights real = kind == Resampler::kPillow ? real_weights(in, out, pillow_cubic, axis)
                                                      : real_weights(in, out, aten_cubic, axis);
  axis.bits = kind == Resampler::kPillow ? 32 - 8 - 2 : int16_bits(real.largest);
  axis.weights.resize(real.weights.size());
  const double one = 1 << axis.bits;
  std::transform(real.weights.begin(), real.weights.end(), axis.weights.begin(), [one](double w) {
    return static_cast<std::int32_t>((w < 0 ? -0.5 : 0.5) + w * one);
  });
  split_weights(axis);
  return axis;
}

}  // namespace evalcar::vision
