#include "evaluator/kernels/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "evaluator/kernels/rms_norm_block.h"
#include "tests/unit/kernels/emulated_block.h"

using namespace evalcar::kernels;
using evalcar::testing::EmulatedBlock;
using evalcar::testing::ThreadOrder;

namespace {

template <int kCount, typename T>
void run(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& y, float eps,
         ThreadOrder order) {
  const RmsNorm<T> n{static_cast<const T*>(x.const_data_ptr()),
                     static_cast<const T*>(weight.const_data_ptr()),
                     static_cast<T*>(y.mutable_data_ptr()),
                     x.size(0),
                     x.size(1),
                     eps};
  for (std::int64_t row = 0; row < n.rows; ++row) {
    EmulatedBlock<NormOwn> block(kNormThreads, order);
    std::array<float, kNormWarps> shared{};
    shared.fill(NAN);
    norm_row<kCount>(n, row, block, shared.data());
  }
}

// As the blocks of the grid do it; in vectors, or one by one.
at::Tensor emulated(const at::Tensor& x, const at::Tensor& weight, bool in_vectors,
                    ThreadOrder order = ThreadOrder::kForwards, float eps = 1e-6F) {
  const at::Tensor y = at::full_like(x, NAN);
  if (x.scalar_type() == at::kFloat) {
    in_vectors ? run<kVector<float>, float>(x, weight, y, eps, order)
               : run<1, float>(x, weight, y, eps, order);
  } else {
    in_vectors ? run<kVector<BFloat16>, BFloat16>(x, weight, y, eps, order)
               : run<1, BFloat16>(x, weight, y, eps, order);
  }
  return y;
}

bool takes_vectors(at::ScalarType type, std::int64_t width) {
  return width % (type == at::kFloat ? kVector<float> : kVector<BFloat16>) == 0;
}

}  // namespace

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

TEST_CASE("the rms_norm kernel gives its ATen version's values, in vectors or one by one") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t width : {1, 8, 80, 255, 256, 1280, 2048, 2056, 5000, 8192}) {
      const at::Tensor x = at::randn({3, width}).mul_(3.0).to(type);
      const at::Tensor weight = at::randn({width}).to(type);
      const at::Tensor expected = rms_norm_reference(x, weight, 1e-6).to(at::kFloat);
      for (const bool in_vectors : {false, true}) {
        if (in_vectors && !takes_vectors(type, width)) continue;
        const at::Tensor y = emulated(x, weight, in_vectors).to(at::kFloat);

        // As in rms_norm_gpu_test: the sums run in another order, and two roundings follow.
        const double tolerance = type == at::kFloat ? 2e-6 : 1.6e-2;
        CAPTURE(type, width, in_vectors);
        CHECK(((y - expected).abs() / (expected.abs() + 1e-3)).max().item<double>() <= tolerance);
      }
    }
  }
}

TEST_CASE("rms_norm rounds where ATen's operations do: the same bits where the sum is exact") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randint(-4, 5, {3, 512}).to(type);
    const at::Tensor weight = at::randn({512}).to(type);
    for (const bool in_vectors : {false, true}) {
      CHECK(at::equal(emulated(x, weight, in_vectors), rms_norm_reference(x, weight, 1e-6)));
    }
  }
}

TEST_CASE("no thread of rms_norm needs what another does in the same phase") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({2, 3000}).to(type), weight = at::randn({3000}).to(type);
    for (const bool in_vectors : {false, true}) {
      CHECK(at::equal(emulated(x, weight, in_vectors),
                      emulated(x, weight, in_vectors, ThreadOrder::kBackwards)));
    }
  }
}

TEST_CASE("the bits of rms_norm's rows do not depend on their neighbours") {
  const at::Tensor x = at::randn({4, 1032}), weight = at::randn({1032});
  const at::Tensor expected = emulated(x, weight, true);
  x[1].fill_(NAN);
  x[3].fill_(INFINITY);

  const at::Tensor y = emulated(x, weight, true);

  CHECK(at::equal(y[0], expected[0]));
  CHECK(at::equal(y[2], expected[2]));
  CHECK(at::isnan(y[1]).all().item<bool>());
}

TEST_CASE("a row of zeros is divided by the root of eps") {
  const at::Tensor x = at::full_like(at::randn({1, 64}), 0.0), weight = at::randn({64});
  CHECK(at::equal(emulated(x, weight, true), rms_norm_reference(x, weight, 1e-6)));
}
