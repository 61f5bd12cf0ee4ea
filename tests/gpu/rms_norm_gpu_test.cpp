#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/randn.h>

#include <catch2/catch_test_macros.hpp>

#include "evaluator/kernels/rms_norm.h"

using namespace evalcar::kernels;

TEST_CASE("the rms_norm kernel gives its ATen version's values, and the same bits twice") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t width : {1, 80, 255, 256, 1280, 5000, 8192}) {
      const auto options = at::TensorOptions().device(at::kCUDA);
      const at::Tensor x = at::randn({37, width}, options).to(dtype);
      const at::Tensor weight = at::randn({width}, options).to(dtype);

      REQUIRE(has_rms_norm_kernel(x, weight));
      const at::Tensor y = rms_norm(x, weight, 1e-6).to(at::kFloat);
      const at::Tensor expected = rms_norm_reference(x, weight, 1e-6).to(at::kFloat);

      // The sums run in another order. Where that turns the rounding before the weight multiplies,
      // the product's own may add a second unit of the last place.
      const float tolerance = dtype == at::kFloat ? 2e-6f : 1.6e-2f;
      const at::Tensor error = (y - expected).abs() / (expected.abs() + 1e-3);
      CHECK(error.max().item<float>() <= tolerance);
      CHECK((rms_norm(x, weight, 1e-6).to(at::kFloat) - y).abs().max().item<float>() == 0.0f);
    }
  }
}

TEST_CASE(
    "the rms_norm kernel loads numbers one by one where they lie at no boundary of 16 bytes") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  const auto options = at::TensorOptions().device(at::kCUDA);
  const auto displaced = [&](std::int64_t count) {
    return at::randn({count + 1}, options).narrow(0, 1, count);
  };
  const at::Tensor x = displaced(4 * 256).view({4, 256}), weight = displaced(256);
  REQUIRE(has_rms_norm_kernel(x, weight));
  const at::Tensor expected = rms_norm_reference(x, weight, 1e-6);
  for (const bool x_lies_there : {false, true}) {
    for (const bool weight_lies_there : {false, true}) {
      const at::Tensor y =
          rms_norm(x_lies_there ? x.clone() : x, weight_lies_there ? weight.clone() : weight, 1e-6);
      CHECK(((y - expected).abs() / (expected.abs() + 1e-3)).max().item<float>() <= 2e-6F);
    }
  }
}
