#include "evaluator/kernels/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <catch2/catch_test_macros.hpp>

using namespace evalcar::kernels;

TEST_CASE("a row is divided by its root mean square and multiplied by the weight") {
  const at::Tensor x = at::tensor({3.0f, -4.0f, 0.0f, 5.0f}).view({2, 2});
  const at::Tensor weight = at::tensor({1.0f, 2.0f});

  const at::Tensor y = rms_norm(x, weight, 0.0);

  // Row 0: root mean square sqrt(12.5); row 1: the same.
  const at::Tensor expected = at::tensor({0.8485281f, -2.2627417f, 0.0f, 2.8284271f}).view({2, 2});
  CHECK((y - expected).abs().max().item<float>() < 1e-6f);
}

TEST_CASE("rows of any width and number are normalised as by ATen's operations") {
  for (const std::int64_t width : {1, 15, 16, 33, 128, 1000}) {
    for (const std::int64_t rows : {0, 1, 7, 300}) {
      const at::Tensor x = at::randn({rows, width}) * 3.0;
      const at::Tensor weight = at::randn({width});

      const at::Tensor y = rms_norm(x, weight, 1e-6);

      CAPTURE(width, rows);
      REQUIRE(y.sizes() == x.sizes());
      CHECK(at::allclose(y, rms_norm_reference(x, weight, 1e-6), 1e-5, 1e-6));
    }
  }
}
