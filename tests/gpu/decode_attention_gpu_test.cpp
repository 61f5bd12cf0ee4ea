#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/all.h>
#include <ATen/ops/any.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "evaluator/kernels/decode_attention.h"

using namespace evalcar::kernels;

namespace {

// Around the borders of splits, some in a window, one long.
const std::vector<SeenKeys> kLengths = {{.begin = 0, .end = 1},    {.begin = 0, .end = 127},
                                        {.begin = 0, .end = 256},  {.begin = 0, .end = 257},
                                        {.begin = 77, .end = 700}, {.begin = 699, .end = 700},
                                        {.begin = 0, .end = 9001}};

struct Slots {
  at::Tensor q, keys, values;

  at::Tensor attended(std::int64_t rows) const {
    const std::vector<SeenKeys> seen(kLengths.begin(), kLengths.begin() + rows);
    return decode_attention(q.narrow(0, 0, rows), keys, values, decode_sight(seen, keys.device()));
  }
};

// A cache with a slot more; what no row sees is NaN.
Slots slots_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t dim, at::ScalarType type) {
  const auto rows = static_cast<std::int64_t>(kLengths.size());
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(type);
  Slots made{at::randn({rows, heads, dim}, options),
             at::full({rows + 1, 9010, kv_heads, dim}, NAN, options),
             at::full({rows + 1, 9010, kv_heads, dim}, NAN, options)};
  for (std::int64_t row = 0; row < rows; ++row) {
    const SeenKeys& each = kLengths[static_cast<std::size_t>(row)];
    for (const at::Tensor& half : {made.keys, made.values}) {
      const at::Tensor part = half.select(0, row).narrow(0, each.begin, each.end - each.begin);
      part.copy_(at::randn(part.sizes(), options));
    }
  }
  return made;
}

}  // namespace

TEST_CASE("the decode attention kernel gives its ATen version's values, and the same bits twice") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t dim : {64, 80, 96, 128}) {
      for (const auto& [heads, kv_heads] : {std::pair{2, 2}, {4, 2}, {8, 2}, {28, 4}, {9, 1}}) {
        CAPTURE(type, dim, heads, kv_heads);
        const Slots slots = slots_of(heads, kv_heads, dim, type);
        REQUIRE(has_decode_kernel(slots.keys));

        const at::Tensor got = slots.attended(7);

        // The reference multiplies in float32 (no TF32 by default). bfloat16: a unit of the last
        // place.
        const at::Tensor expected =
            decode_attention_reference(slots.q, slots.keys, slots.values, kLengths).to(at::kFloat);
        const float largest = std::max(1.0F, expected.abs().max().item<float>());
        const float error = (got.to(at::kFloat) - expected).abs().max().item<float>();
        CHECK(error <= (type == at::kFloat ? 5e-6F : 4.1e-3F) * largest);
        CHECK(at::equal(got, slots.attended(7)));
        CHECK(at::equal(got.narrow(0, 0, 4), slots.attended(4)));  // without its neighbours
      }
    }
  }
}

TEST_CASE("the decode attention kernel tells a NaN to its own row alone") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  const Slots slots = slots_of(28, 4, 128, at::kBFloat16);
  slots.keys.select(0, 4).select(0, 80).fill_(NAN);

  const at::Tensor nan = at::isnan(slots.attended(7));

  CHECK(nan.select(0, 4).all().item<bool>());
  CHECK_FALSE(nan.narrow(0, 0, 4).any().item<bool>());
  CHECK_FALSE(nan.narrow(0, 5, 2).any().item<bool>());
}
