#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "evaluator/kernels/few_rows_block.h"
#include "evaluator/kernels/linear.h"
#include "tests/unit/kernels/emulated_block.h"

using namespace evalcar::kernels;
using evalcar::testing::EmulatedBlock;
using evalcar::testing::ThreadOrder;

namespace {

template <int kRows, typename T>
void run_blocks(const FewRows<T>& p, ThreadOrder order) {
  using Shape = FewRowsShape<kRows>;
  for (std::int64_t number = 0; number < few_rows_blocks(p); ++number) {
    EmulatedBlock<typename Shape::Own> block(kFewRowsThreads, order);
    std::array<float, Shape::kShared> shared{};
    shared.fill(NAN);
    multiply_few_rows<kRows>(p, number, block, shared.data());
  }
}

template <typename T>
void run(const at::Tensor& x, const LinearWeights& weights, RowsResult result, const at::Tensor& y,
         ThreadOrder order) {
  const FewRows<T> p{
      static_cast<const T*>(x.const_data_ptr()),
      static_cast<const T*>(weights.weight.const_data_ptr()),
      weights.bias.defined() ? static_cast<const T*>(weights.bias.const_data_ptr()) : nullptr,
      static_cast<T*>(y.mutable_data_ptr()),
      x.size(0),
      weights.weight.size(0),
      x.size(1),
      result};
  switch (x.size(0)) {
    case 1:
      return run_blocks<1>(p, order);
    case 2:
      return run_blocks<2>(p, order);
    case 3:
      return run_blocks<3>(p, order);
    default:
      return run_blocks<4>(p, order);
  }
}

// As the blocks of the grid do it; `before` is what y holds, else NaN.
at::Tensor emulated(const at::Tensor& x, const LinearWeights& weights, RowsResult result,
                    const at::Tensor& before = {}, ThreadOrder order = ThreadOrder::kForwards) {
  const std::int64_t outputs = weights.weight.size(0);
  const std::int64_t columns = result == RowsResult::kGated ? outputs / 2 : outputs;
  const at::Tensor y =
      before.defined() ? before.clone() : at::full({x.size(0), columns}, NAN, x.options());
  if (x.scalar_type() == at::kFloat) {
    run<float>(x, weights, result, y, order);
  } else {
    run<BFloat16>(x, weights, result, y, order);
  }
  return y;
}

double error_of(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor wanted = expected.to(at::kDouble);
  return ((got.to(at::kDouble) - wanted).abs() / (wanted.abs() + 0.05)).max().item<double>();
}

LinearWeights as_double(const LinearWeights& weights) {
  return {weights.weight.to(at::kDouble),
          weights.bias.defined() ? weights.bias.to(at::kDouble) : at::Tensor(), at::Tensor()};
}

}  // namespace

TEST_CASE("a few rows are multiplied, added and gated as by ATen's operations") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    // One rounding of the result; gated, of each factor, too.
    const double tolerance = type == at::kFloat ? 8e-6 : 4.0e-3;
    for (const std::int64_t rows : {1, 2, 3, 4}) {
      for (const std::int64_t outputs : {2, 6, 8, 50}) {
        for (const std::int64_t width : {8, 136, 1024, 2056}) {
          for (const bool bias : {false, true}) {
            CAPTURE(type, rows, outputs, width, bias);
            const at::Tensor x = at::randn({rows, width}).to(type);
            const LinearWeights weights{
                (at::randn({outputs, width}) / std::sqrt(static_cast<double>(width))).to(type),
                bias ? at::randn({outputs}).to(type) : at::Tensor(), at::Tensor()};
            const at::Tensor exact = linear_reference(x.to(at::kDouble), as_double(weights));

            CHECK(error_of(emulated(x, weights, RowsResult::kStored), exact) < tolerance);
            const at::Tensor before = at::randn({rows, outputs}).to(type);
            CHECK(error_of(emulated(x, weights, RowsResult::kAdded, before),
                           exact + before.to(at::kDouble)) < tolerance);
            const at::Tensor gated = gated_linear_reference(x.to(at::kDouble), as_double(weights));
            CHECK(error_of(emulated(x, weights, RowsResult::kGated), gated) < 4 * tolerance);
          }
        }
      }
    }
  }
}

TEST_CASE("of a few rows none has other bits beside others, nor in another order of threads") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({4, 1304}).to(type);
    const LinearWeights weights{at::randn({22, 1304}).to(type), at::randn({22}).to(type), {}};
    for (const RowsResult result : {RowsResult::kStored, RowsResult::kGated}) {
      const at::Tensor together = emulated(x, weights, result);
      CHECK(at::equal(together, emulated(x, weights, result, {}, ThreadOrder::kBackwards)));
      for (std::int64_t row = 0; row < 4; ++row) {
        CAPTURE(type, row);
        CHECK(at::equal(emulated(x.narrow(0, row, 1).contiguous(), weights, result),
                        together.narrow(0, row, 1)));
      }
    }
  }
}
