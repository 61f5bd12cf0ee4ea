#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>

#include <catch2/catch_test_macros.hpp>

#include "evaluator/kernels/rotate_heads.h"

using namespace evalcar::kernels;

TEST_CASE("the rotate_heads kernel gives its ATen version's bits") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  const auto options = at::TensorOptions().device(at::kCUDA);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t dim : {16, 32, 80, 128}) {
      for (const std::int64_t rows : {1, 333, 8192}) {
        const at::Tensor x = at::randn({rows, 3, 5, dim}, options).to(dtype).select(1, 1);
        const at::Tensor angles = at::randn({rows, 1, dim / 2}, options) * 3.0;
        const at::Tensor cos = angles.cos(), sin = angles.sin();

        REQUIRE(has_rotate_kernel(x, cos, sin));
        CHECK(at::equal(rotate_heads(x, cos, sin), rotate_heads_reference(x, cos, sin)));
      }
    }
  }
}

TEST_CASE("heads that lie at no boundary of 16 bytes are turned by ATen's operations") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  const auto options = at::TensorOptions().device(at::kCUDA);
  const at::Tensor angles = at::randn({9, 1, 40}, options);
  const at::Tensor displaced = at::randn({9 * 2 * 80 + 1}, options).narrow(0, 1, 9 * 2 * 80);
  const at::Tensor x = displaced.view({9, 2, 80});
  const at::Tensor cos = angles.cos(), sin = angles.sin();
  CHECK_FALSE(has_rotate_kernel(x, cos, sin));
  CHECK(at::equal(rotate_heads(x, cos, sin), rotate_heads_reference(x, cos, sin)));
}
