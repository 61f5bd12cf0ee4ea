#include "evaluator/models/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/where.h>

#include <numbers>

#include "evaluator/kernels/rotate_heads.h"

namespace evalcar::models {
namespace {

at::Tensor plain_frequencies(double base, std::int64_t dim) {
  const at::Tensor exponents =
      at::arange(0, dim, 2, at::TensorOptions().dtype(at::kFloat)) / static_cast<double>(dim);
  return at::pow(base, exponents).reciprocal();
}

// Slow pairs are divided by the factor, fast ones are not, and between the two wavelengths a ramp
// leads from one to the other. In float32 and in transformers' order of operations: its bits.
at::Tensor llama3_frequencies(const RotarySettings& s, const at::Tensor& plain) {
  const double slow_wavelength = s.original_positions / s.low_frequency;
  const double fast_wavelength = s.original_positions / s.high_frequency;
  const at::Tensor wavelengths = plain.reciprocal() * (2 * std::numbers::pi);
  const at::Tensor slowed = at::where(wavelengths > slow_wavelength, plain / s.factor, plain);
  const at::Tensor share = (wavelengths.reciprocal() * s.original_positions - s.low_frequency) /
                           (s.high_frequency - s.low_frequency);
  const at::Tensor ramp = (1 - share) * slowed / s.factor + share * slowed;
  const at::Tensor between =
      (wavelengths >= fast_wavelength).logical_and(wavelengths <= slow_wavelength);
  return at::where(between, ramp, slowed);
}

}  // namespace

at::Tensor rotary_frequencies(double base, std::int64_t dim, at::Device device) {
  return plain_frequencies(base, dim).to(device);
}

at::Tensor rotary_frequencies(const RotarySettings& settings, std::int64_t dim, at::Device device) {
  at::Tensor frequencies = plain_frequencies(settings.theta, dim);
  if (settings.scaling == RotaryScaling::kLinear) frequencies = frequencies / settings.factor;
  if (settings.scaling == RotaryScaling::kLlama3)
    frequencies = llama3_frequencies(settings, frequencies);
  return frequencies.to(device);
}

RotaryAngles rotary_angles(const at::Tensor& angles, at::ScalarType dtype) {
  // Positions that were gathered by axis lie axis by axis in memory, and so would these.
  const auto rows = [dtype](const at::Tensor& x) { return x.to(dtype).contiguous().unsqueeze(1); };
  return {rows(angles.cos()), rows(angles.sin())};
}

at::Tensor rotate(const at::Tensor& x, const RotaryAngles& angles) {
  return kernels::rotate_heads(x, angles.cos, angles.sin);
}

}  // namespace evalcar::models
