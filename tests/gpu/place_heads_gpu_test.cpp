#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>

#include <catch2/catch_test_macros.hpp>

#include "evaluator/kernels/place_heads.h"

using namespace evalcar::kernels;

namespace {

struct Placed {
  at::Tensor q, keys, values;
};

// Rows of three slots in turn, in a layer of a cache that is full of -7.
Placed placed(const PackedHeads& heads, std::int64_t kv_heads, const auto& place) {
  const std::int64_t rows = heads.qkv.size(0);
  const at::Tensor number =
      at::arange(rows, at::TensorOptions().device(at::kCUDA).dtype(at::kLong));
  const auto cache = [&] {
    return at::full({3, rows, kv_heads, heads.qkv.size(2)}, -7.0, heads.qkv.options());
  };
  CachePlace to{.slots = number.remainder(3),
                .places = number.div(3, "floor") + 1,
                .keys = cache(),
                .values = cache()};
  const at::Tensor q = place(heads, to);
  return {q, to.keys, to.values};
}

float difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kFloat) - b.to(at::kFloat)).abs().max() / b.to(at::kFloat).abs().max())
      .item<float>();
}

}  // namespace

TEST_CASE("the kernel that places heads gives its ATen version's values, and the same bits twice") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  const auto options = at::TensorOptions().device(at::kCUDA);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t dim : {16, 64, 80, 96, 128}) {
      for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {14, 2}, {32, 8}}) {
        for (const bool norms : {false, true}) {
          CAPTURE(type, dim, heads, kv_heads, norms);
          const at::Tensor angles = at::rand({37, 1, dim / 2}, options).mul_(100);
          const auto norm = [&] {
            return norms ? at::randn({dim}, options).to(type) : at::Tensor();
          };
          const PackedHeads packed{
              .qkv = at::randn({37, heads + 2 * kv_heads, dim}, options).mul_(3.0).to(type),
              .q_norm = norm(),
              .k_norm = norm(),
              .eps = 1e-6,
              .cos = angles.cos().to(type),
              .sin = angles.sin().to(type),
              .heads = heads};
          const auto by_kernel = [](const PackedHeads& h, const CachePlace& place) {
            REQUIRE(has_place_kernel(h, place));
            return place_heads(h, place);
          };

          const Placed got = placed(packed, kv_heads, by_kernel);

          const Placed expected = placed(packed, kv_heads, place_heads_reference);
          // With norms: their sums run in another order, and four roundings follow.
          const float tolerance = !norms ? 0.0F : type == at::kFloat ? 1e-6F : 1.2e-2F;
          CHECK(difference(got.q, expected.q) <= tolerance);
          CHECK(difference(got.keys, expected.keys) <= tolerance);
          CHECK(at::equal(got.values, expected.values));
          const Placed again = placed(packed, kv_heads, by_kernel);
          CHECK(at::equal(got.q, again.q));
          CHECK(at::equal(got.keys, again.keys));
        }
      }
    }
  }
}
