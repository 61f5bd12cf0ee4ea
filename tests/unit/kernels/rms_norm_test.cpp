#include "evaluator/kernels/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
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
