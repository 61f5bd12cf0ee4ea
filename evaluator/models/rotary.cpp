#include "evaluator/models/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>

namespace evalcar::models {

at::Tensor rotary_frequencies(double base, std::int64_t dim, at::Device device) {
  const at::Tensor exponents =
      at::arange(0, dim, 2, at::TensorOptions().dtype(at::kFloat)) / static_cast<double>(dim);
  return at::pow(base, exponents).reciprocal().to(device);
}

RotaryAngles rotary_angles(const at::Tensor& angles, at::ScalarType dtype) {
  return {angles.cos().to(dtype).unsqueeze(1), angles.sin().to(dtype).unsqueeze(1)};
}

at::Tensor rotate(const at::Tensor& x, const RotaryAngles& angles) {
  const at::Tensor wide = x.to(angles.cos.scalar_type());
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor first = wide.narrow(-1, 0, half);
  const at::Tensor second = wide.narrow(-1, half, half);
  return at::cat(
             {first * angles.cos - second * angles.sin, second * angles.cos + first * angles.sin},
             -1)
      .to(x.scalar_type());
}

}  // namespace evalcar::models
