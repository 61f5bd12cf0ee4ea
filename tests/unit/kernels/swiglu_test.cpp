#include "evaluator/kernels/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "evaluator/kernels/linear.h"
#include "evaluator/kernels/swiglu_block.h"

using namespace evalcar::kernels;

namespace {

template <int kCount, typename T>
void run(const at::Tensor& both, const at::Tensor& out) {
  const Swiglu<T> s{static_cast<const T*>(both.const_data_ptr()),
                    static_cast<T*>(out.mutable_data_ptr()), out.size(0), out.size(1)};
  for (std::int64_t i = 0; i < s.rows * (s.width / kCount); ++i) gate_numbers<kCount>(s, i);
}

// As the threads of the grid do it; in vectors, or one by one.
at::Tensor emulated(const at::Tensor& both, bool in_vectors) {
  const at::Tensor out = at::full({both.size(0), both.size(1) / 2}, NAN, both.options());
  if (both.scalar_type() == at::kFloat) {
    in_vectors ? run<kVector<float>, float>(both, out) : run<1, float>(both, out);
  } else {
    in_vectors ? run<kVector<BFloat16>, BFloat16>(both, out) : run<1, BFloat16>(both, out);
  }
  return out;
}

// Largest error of an element, of its own size.
double error_of(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor wanted = expected.to(at::kDouble);
  return ((got.to(at::kDouble) - wanted).abs() / (wanted.abs() + 1e-20)).max().item<double>();
}

}  // namespace

TEST_CASE(
    "the SwiGLU kernel gives its ATen version's values for any width, in vectors or one by one") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t width : {1, 3, 8, 20, 128, 333, 1048}) {
      const at::Tensor both = at::randn({5, 2 * width}).mul_(6.0).to(type);
      // An exponential of float32 by another polynomial; of bfloat16, a unit of the last place.
      const double tolerance = type == at::kFloat ? 5e-7 : 7.9e-3;
      for (const bool in_vectors : {false, true}) {
        if (in_vectors && width % (type == at::kFloat ? 4 : 8) != 0) continue;
        CAPTURE(type, width, in_vectors);
        CHECK(error_of(emulated(both, in_vectors), swiglu_reference(both)) < tolerance);
      }
    }
  }
}

TEST_CASE("in vectors and one by one the SwiGLU kernel gives the same bits") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor both = at::randn({7, 2 * 64}).mul_(6.0).to(type);
    CHECK(at::equal(emulated(both, true), emulated(both, false)));
  }
}

TEST_CASE("SwiGLU's gates at the ends of float32 let through what ATen's do") {
  const at::Tensor gates =
      at::tensor({-INFINITY, -1e4F, -88.8F, -0.0F, 0.0F, 100.0F, 1e30F, INFINITY, NAN});
  const at::Tensor both = at::empty({1, 18});
  both.narrow(1, 0, 9).copy_(gates);
  both.narrow(1, 9, 9).fill_(2);

  const at::Tensor got = emulated(both, false), expected = swiglu_reference(both);

  CHECK(at::equal(at::isnan(got), at::isnan(expected)));
  CHECK(at::equal(got.masked_fill(got.isnan(), 0).narrow(1, 3, 5),
                  expected.masked_fill(expected.isnan(), 0).narrow(1, 3, 5)));
  CHECK(got.narrow(1, 1, 2).abs().max().item<float>() < 1e-30F);
}

TEST_CASE("a gated linear layer is SwiGLU of the linear layer") {
  const at::Tensor x = at::randn({40, 16});
  const LinearWeights weights{at::randn({48, 16}), at::randn({48}), {}};
  CHECK(error_of(gated_linear_reference(x, weights),
                 swiglu_reference(linear_reference(x, weights))) == 0);
}
