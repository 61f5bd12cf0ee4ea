#include "evaluator/kernels/rotate_heads.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "evaluator/kernels/rotate_heads_block.h"

using namespace evalcar::kernels;

namespace {

template <typename T>
void run(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& y) {
  const RotateHeads<T> r{static_cast<const T*>(x.const_data_ptr()),
                         x.stride(0),
                         x.stride(1),
                         cos.const_data_ptr<float>(),
                         sin.const_data_ptr<float>(),
                         static_cast<T*>(y.mutable_data_ptr()),
                         x.size(0),
                         x.size(1),
                         x.size(2) / 2};
  // Backwards: no thread needs what another does.
  for (std::int64_t task = r.tasks(); task-- > 0;) turn_vector(r, static_cast<std::uint32_t>(task));
}

// As the threads of the grid do it.
at::Tensor emulated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const at::Tensor y = at::full(x.sizes(), NAN, x.options());
  x.scalar_type() == at::kFloat ? run<float>(x, cos, sin, y) : run<BFloat16>(x, cos, sin, y);
  return y;
}

struct Heads {
  at::Tensor x, cos, sin;
};

// Queries among keys and values, as a fused projection gives them.
Heads heads_of(std::int64_t rows, std::int64_t heads, std::int64_t dim, at::ScalarType type) {
  const at::Tensor angles = at::randn({rows, 1, dim / 2}) * 3.0;
  return {at::randn({rows, 3, heads, dim}).to(type).select(1, 1), angles.cos(), angles.sin()};
}

}  // namespace

TEST_CASE("the rotate_heads kernel gives its ATen version's bits, for heads of any dimension") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t dim : {16, 32, 80, 128, 144}) {
      for (const std::int64_t rows : {1, 7, 130}) {
        const auto [x, cos, sin] = heads_of(rows, 3, dim, type);
        CAPTURE(type, dim, rows);
        CHECK(at::equal(emulated(x, cos, sin), rotate_heads_reference(x, cos, sin)));
      }
    }
  }
}

TEST_CASE("on the CPU heads are turned to the reference's values, wherever they lie") {
  const auto [x, cos, sin] = heads_of(33, 5, 20, at::kFloat);
  for (const at::Tensor& heads :
       {x, x.contiguous(), x.transpose(1, 2).contiguous().transpose(1, 2)})
    CHECK(at::equal(rotate_heads(heads, cos, sin), rotate_heads_reference(heads, cos, sin)));
}

TEST_CASE("a number that is none spoils its own pair, and no other") {
  const auto [x, cos, sin] = heads_of(3, 2, 32, at::kFloat);
  x[1][0][5].fill_(NAN);

  const at::Tensor none = at::isnan(emulated(x, cos, sin));

  CHECK(none.sum().item<std::int64_t>() == 2);
  CHECK(none[1][0][5].item<bool>());
  CHECK(none[1][0][21].item<bool>());
}
