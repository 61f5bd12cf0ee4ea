#include "evaluator/kernels/rms_norm.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
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

TEST_CASE("the CUDA kernel gives the reference's values", "[gpu]") {
  if (!at::hasCUDA()) SKIP("no GPU on this machine");
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t width : {1, 80, 255, 256, 1280, 8192}) {
      const auto options = at::TensorOptions().device(at::kCUDA);
      const at::Tensor x = at::randn({37, width}, options).to(dtype);
      const at::Tensor weight = at::randn({width}, options).to(dtype);

      const at::Tensor y = rms_norm(x, weight, 1e-6).to(at::kFloat);
      const at::Tensor expected = rms_norm_reference(x, weight, 1e-6).to(at::kFloat);

      // One unit in the last place of the dtype: the sums run in another order.
      const float tolerance = dtype == at::kFloat ? 2e-6f : 8e-3f;
      const at::Tensor error = (y - expected).abs() / (expected.abs() + 1e-3);
      CHECK(error.max().item<float>() <= tolerance);
      CHECK((rms_norm(x, weight, 1e-6).to(at::kFloat) - y).abs().max().item<float>() == 0.0f);
    }
  }
}
