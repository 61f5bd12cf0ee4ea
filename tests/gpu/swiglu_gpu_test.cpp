#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>

#include <catch2/catch_test_macros.hpp>

#include "evaluator/kernels/swiglu.h"

using namespace evalcar::kernels;

TEST_CASE("the SwiGLU kernel gives its ATen version's values, and the same bits twice") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t width : {1, 3, 8, 20, 333, 3420, 18944}) {
      CAPTURE(type, width);
      const at::Tensor both =
          at::randn({37, 2 * width}, at::TensorOptions().device(at::kCUDA)).mul_(6.0).to(type);

      REQUIRE(has_swiglu_kernel(both));
      const at::Tensor got = swiglu(both);

      const at::Tensor expected = swiglu_reference(both).to(at::kFloat);
      const at::Tensor error = (got.to(at::kFloat) - expected).abs() / (expected.abs() + 1e-20);
      // The same operations: at most a unit of the last place, where the compiler fused two.
      CHECK(error.max().item<float>() <= (type == at::kFloat ? 3e-7F : 7.9e-3F));
      CHECK(at::equal(got, swiglu(both)));
    }
  }
}
