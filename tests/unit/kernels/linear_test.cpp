#include "evaluator/kernels/linear.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/max.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/square.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch_test_macros.hpp>

#include "evaluator/kernels/many_rows.h"
#include "evaluator/kernels/row_kernels.h"

using namespace evalcar::kernels;

namespace {

LinearWeights weights_of(std::int64_t outputs, std::int64_t width, bool bias, bool half) {
  const at::Tensor narrow = at::randn({outputs, width}).to(at::kBFloat16);
  return {narrow.to(at::kFloat), bias ? at::randn({outputs}) : at::Tensor(),
          half ? narrow : at::Tensor()};
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace

TEST_CASE("a linear layer gives what libtorch's gives, for few rows and for many") {
  for (const bool half : {false, true}) {
    for (const bool bias : {false, true}) {
      const LinearWeights weights = weights_of(1000, 193, bias, half);
      for (const std::int64_t rows : {0, 1, 2, 5, 16, 17, 32, 33, 100, 600}) {
        const at::Tensor x = at::randn({rows, 193});
        const at::Tensor y = linear(x, weights);
        REQUIRE(y.sizes() == at::IntArrayRef({rows, 1000}));
        CAPTURE(half, bias, rows);
        if (rows > 0) CHECK(difference(y, linear_reference(x, weights)) < 1e-4);
      }
    }
  }
}

TEST_CASE("the bfloat16 copy of a matrix is what is read where there is one") {
  if (row_kernels().size() == 1) SKIP("no vector kernels for this CPU");
  LinearWeights weights = weights_of(40, 64, false, true);
  const at::Tensor x = at::randn({1, 64});
  const at::Tensor with_half = linear(x, weights);
  weights.weight.zero_();

  CHECK(at::equal(linear(x, weights), with_half));
  weights.half.reset();
  CHECK(linear(x, weights).abs().max().item<float>() == 0);
}

TEST_CASE(
    "a linear layer for few rows gives the same bits whatever the rows beside and the threads") {
  if (row_kernels().size() == 1) SKIP("no vector kernels for this CPU");
  const int threads = at::get_num_threads();
  for (const bool half : {false, true}) {
    const LinearWeights weights = weights_of(3001, 257, true, half);
    const at::Tensor x = at::randn({rows_of_one_kernel(), 257});
    at::set_num_threads(1);
    const at::Tensor all = linear(x, weights);
    at::set_num_threads(2);
    CHECK(at::equal(linear(x, weights), all));
    for (std::int64_t m = 0; m < rows_of_one_kernel(); ++m)
      CHECK(at::equal(linear(x.narrow(0, m, 1), weights), all.narrow(0, m, 1)));
    CHECK(at::equal(linear(x.t().contiguous().t(), weights), all));  // not contiguous
  }
  at::set_num_threads(threads);
}

TEST_CASE(
    "SwiGLU of a layer is silu of its first half times its second, for few rows and for many") {
  for (const bool half : {false, true}) {
    for (const std::int64_t inner : {32, 45, 310}) {
      const LinearWeights weights = weights_of(2 * inner, 130, inner != 310, half);
      for (const std::int64_t rows : {1, 32, 33, 500}) {
        const at::Tensor x = at::randn({rows, 130}) * 0.1;
        const at::Tensor y = gated_linear(x, weights);
        REQUIRE(y.sizes() == at::IntArrayRef({rows, inner}));
        CAPTURE(half, inner, rows);
        const at::Tensor expected = gated_linear_reference(x, weights);
        CHECK(((y - expected).abs() / (expected.abs() + 1)).max().item<double>() < 2e-5);
      }
    }
  }
}

TEST_CASE("a gate far from 0 passes or shuts") {
  LinearWeights weights = weights_of(2, 1, false, false);
  weights.weight.select(0, 0).fill_(1);
  weights.weight.select(0, 1).fill_(1);
  const at::Tensor x = at::linspace(-500, 500, 101).view({101, 1});

  for (const std::int64_t rows : {101, 1}) {  // all at once, and one by one
    at::Tensor y = at::ones({101, 1});
    for (std::int64_t first = 0; first < 101; first += rows)
      y.narrow(0, first, rows).copy_(gated_linear(x.narrow(0, first, rows), weights));
    CAPTURE(rows);
    CHECK(at::equal(y.narrow(0, 0, 30), at::zeros({30, 1})));
    CHECK(at::allclose(y.narrow(0, 70, 31), x.narrow(0, 70, 31).square(), 1e-6));
  }
}

TEST_CASE("a layer added or gated for few rows gives the same bits on any threads") {
  if (row_kernels().size() == 1) SKIP("no vector kernels for this CPU");
  const int threads = at::get_num_threads();
  for (const bool half : {false, true}) {
    const LinearWeights weights = weights_of(2 * 1501, 257, true, half);
    const at::Tensor x = at::randn({rows_of_one_kernel(), 257});
    const auto added = [&](const at::Tensor& rows) {
      at::Tensor y = at::ones({rows.size(0), 2 * 1501});
      add_linear(y, rows, weights);
      return y;
    };
    at::set_num_threads(1);
    const at::Tensor sums = added(x), gated = gated_linear(x, weights);
    CHECK(at::equal(sums, linear(x, weights) + 1));
    at::set_num_threads(2);
    CHECK(at::equal(added(x), sums));
    CHECK(at::equal(gated_linear(x, weights), gated));
    for (std::int64_t m = 0; m < rows_of_one_kernel(); ++m) {
      CHECK(at::equal(added(x.narrow(0, m, 1)), sums.narrow(0, m, 1)));
      CHECK(at::equal(gated_linear(x.narrow(0, m, 1), weights), gated.narrow(0, m, 1)));
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("a matrix of which not all is packed at once is multiplied as one") {
  const LinearWeights weights = weights_of(2 * 2500, 1000, true, false);  // two slabs of panels
  const at::Tensor x = at::randn({100, 1000}) * 0.1;

  const at::Tensor y = gated_linear(x, weights), expected = gated_linear_reference(x, weights);

  CHECK(((y - expected).abs() / (expected.abs() + 1)).max().item<double>() < 5e-5);
}

TEST_CASE("of a matrix without width the bias is left, for few rows and for many") {
  const LinearWeights weights = weights_of(40, 0, true, false);
  for (const std::int64_t rows : {1, 70, 500}) {
    CAPTURE(rows);
    CHECK(at::equal(linear(at::zeros({rows, 0}), weights), weights.bias.expand({rows, 40})));
  }
}

TEST_CASE("a layer is added to rows that lie across memory, too") {
  const LinearWeights weights = weights_of(40, 90, false, false);
  const at::Tensor x = at::randn({70, 90}), across = at::ones({40, 70});
  at::Tensor y = across.t();

  add_linear(y, x, weights);

  CHECK(difference(y, linear_reference(x, weights) + 1) < 1e-4);
}

TEST_CASE("a layer is added to what is there, for few rows and for many") {
  for (const std::int64_t rows : {0, 1, 3, 70, 500}) {
    const LinearWeights weights = weights_of(77, 90, true, false);
    const at::Tensor x = at::randn({rows, 90});
    at::Tensor y = at::ones({rows, 77});

    add_linear(y, x, weights);

    CAPTURE(rows);
    if (rows > 0) CHECK(difference(y, linear_reference(x, weights) + 1) < 1e-4);
  }
}

TEST_CASE("many rows give the same bits whatever the threads, and a row whatever those beside") {
  if (!has_many_rows_kernel()) SKIP("no kernel for this CPU");
  const int threads = at::get_num_threads();
  const LinearWeights weights = weights_of(300, 500, true, false);
  const at::Tensor x = at::randn({700, 500});
  at::set_num_threads(1);
  const at::Tensor y = linear(x, weights);
  at::set_num_threads(3);

  CHECK(at::equal(linear(x, weights), y));
  CHECK(at::equal(linear(x.narrow(0, 50, 40), weights), y.narrow(0, 50, 40)));
  at::set_num_threads(threads);
}

TEST_CASE("many rows of a matrix give the same bits with a bfloat16 copy and without") {
  if (!has_many_rows_kernel()) SKIP("no kernel for this CPU");
  for (const std::int64_t rows : {40, 700}) {
    LinearWeights weights = weights_of(300, 500, true, true);
    const at::Tensor x = at::randn({rows, 500});
    const at::Tensor y = linear(x, weights), gated = gated_linear(x, weights);
    weights.half.reset();
    CAPTURE(rows);
    CHECK(at::equal(linear(x, weights), y));
    CHECK(at::equal(gated_linear(x, weights), gated));
  }
}
