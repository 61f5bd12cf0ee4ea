#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "evaluator/kernels/few_rows.h"

using namespace evalcar::kernels;

namespace {

at::Tensor multiplied(const at::Tensor& x, const LinearWeights& weights, RowsResult result,
                      const at::Tensor& before) {
  const at::Tensor y = before.clone();
  multiply_few_rows(x, weights, result, y);
  return y;
}

double error_of(const at::Tensor& got, const at::Tensor& expected) {
  return ((got.to(at::kDouble) - expected).abs() / (expected.abs() + 0.05)).max().item<double>();
}

}  // namespace

TEST_CASE("the kernel of a few rows gives its ATen version's values, and each row its own bits") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const double tolerance = type == at::kFloat ? 2e-5 : 4.0e-3;  // 1e-6 beside 0
    for (const std::int64_t outputs : {2, 50, 4096, 151936}) {
      for (const std::int64_t width : {8, 1304, 6144}) {
        const auto options = at::TensorOptions().device(at::kCUDA).dtype(type);
        const at::Tensor x = at::randn({4, width}, options);
        const LinearWeights weights{
            at::randn({outputs, width}, options) / std::sqrt(static_cast<double>(width)),
            at::randn({outputs}, options), at::Tensor()};
        const LinearWeights wide{weights.weight.to(at::kDouble), weights.bias.to(at::kDouble), {}};
        for (const std::int64_t rows : {1, 2, 3, 4}) {
          CAPTURE(type, outputs, width, rows);
          const at::Tensor few = x.narrow(0, 0, rows);
          REQUIRE(has_few_rows_kernel(few, weights));
          const at::Tensor before = at::randn({rows, outputs}, options);
          const at::Tensor half = before.narrow(1, 0, outputs / 2).contiguous();
          const at::Tensor exact = linear_reference(few.to(at::kDouble), wide);

          const at::Tensor stored = multiplied(few, weights, RowsResult::kStored, before);

          CHECK(error_of(stored, exact) < tolerance);
          CHECK(error_of(multiplied(few, weights, RowsResult::kAdded, before),
                         exact + before.to(at::kDouble)) < tolerance);
          CHECK(error_of(multiplied(few, weights, RowsResult::kGated, half),
                         gated_linear_reference(few.to(at::kDouble), wide)) < 4 * tolerance);
          const at::Tensor alone = at::empty({1, outputs}, options);
          multiply_few_rows(x.narrow(0, 0, 1), weights, RowsResult::kStored, alone);
          CHECK(at::equal(alone, stored.narrow(0, 0, 1)));
        }
      }
    }
  }
}
