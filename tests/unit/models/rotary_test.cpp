#include "evaluator/models/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>

#include <catch2/catch_test_macros.hpp>

using namespace evalcar::models;

namespace {

// In float64, as the formula reads.
at::Tensor turned(const at::Tensor& x, const at::Tensor& angles) {
  const at::Tensor wide = x.to(at::kDouble), turn = angles.to(at::kDouble).unsqueeze(1);
  const std::int64_t half = x.size(2) / 2;
  const at::Tensor a = wide.narrow(2, 0, half), b = wide.narrow(2, half, half);
  return at::cat({a * turn.cos() - b * turn.sin(), b * turn.cos() + a * turn.sin()}, 2);
}

}  // namespace

TEST_CASE("the two halves of a head turn by the row's angles, whatever stands beside in memory") {
  for (const std::int64_t dim : {4, 32, 40, 128}) {
    for (const std::int64_t rows : {0, 1, 200}) {
      const at::Tensor qkv = at::randn({rows, 3, 5, dim});
      const at::Tensor angles = at::randn({rows, dim / 2}) * 3.0;
      const at::Tensor x = qkv.select(1, 1);

      const at::Tensor y = rotate(x, rotary_angles(angles, at::kFloat));

      CAPTURE(dim, rows);
      REQUIRE(y.sizes() == x.sizes());
      CHECK(y.is_contiguous());
      CHECK(at::allclose(y.to(at::kDouble), turned(x, angles), 1e-5, 2e-6));
    }
  }
}

TEST_CASE("a head is turned in the dtype of the angles, and stays of its own") {
  const at::Tensor x = at::randn({6, 2, 32}).to(at::kBFloat16);
  const at::Tensor angles = at::randn({6, 16});

  const at::Tensor y = rotate(x, rotary_angles(angles, at::kFloat));

  CHECK(y.scalar_type() == at::kBFloat16);
  CHECK(at::allclose(y.to(at::kDouble), turned(x, angles), 0.01, 0.01));
}

TEST_CASE("angles that lie axis by axis in memory become rows, which the kernels read") {
  const at::Tensor angles = at::randn({16, 6}).t();

  const RotaryAngles turn = rotary_angles(angles, at::kBFloat16);

  CHECK(turn.cos.is_contiguous());
  CHECK(turn.sin.is_contiguous());
  CHECK(at::equal(turn.cos.squeeze(1), angles.cos().to(at::kBFloat16)));
}
