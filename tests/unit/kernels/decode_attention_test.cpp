#include "evaluator/kernels/decode_attention.h"

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

#include "evaluator/kernels/attention.h"
#include "evaluator/kernels/decode_attention_threads.h"
#include "tests/unit/kernels/emulated_decode_attention.h"
#include "tests/unit/kernels/fenced_tensor.h"

using namespace evalcar::kernels;
using evalcar::testing::before_a_fence;
using evalcar::testing::emulated_decode_attention;
using evalcar::testing::ThreadOrder;

namespace {

struct Slots {
  at::Tensor q, keys, values;
  std::vector<SeenKeys> seen;

  at::Tensor by_kernel(ThreadOrder order = ThreadOrder::kForwards) const {
    return emulated_decode_attention(q, keys, values, seen, order);
  }
  at::Tensor by_reference() const { return decode_attention_reference(q, keys, values, seen); }
};

struct Shape {
  std::int64_t heads, kv_heads, dim;
};

// Rows that see `seen`, in a cache with a slot more; what no row sees is NaN.
Slots slots_of(const Shape& shape, const std::vector<SeenKeys>& seen,
               at::ScalarType type = at::kFloat) {
  const auto rows = static_cast<std::int64_t>(seen.size());
  std::int64_t capacity = 0;
  for (const SeenKeys& each : seen) capacity = std::max(capacity, each.end + 3);
  Slots made{at::randn({rows, shape.heads, shape.dim}).mul_(2.0).to(type),
             at::full({rows + 1, capacity, shape.kv_heads, shape.dim}, NAN).to(type),
             at::full({rows + 1, capacity, shape.kv_heads, shape.dim}, NAN).to(type), seen};
  for (std::int64_t row = 0; row < rows; ++row) {
    const SeenKeys& each = seen[static_cast<std::size_t>(row)];
    for (const at::Tensor& half : {made.keys, made.values}) {
      const at::Tensor part = half.select(0, row).narrow(0, each.begin, each.end - each.begin);
      part.copy_(at::randn(part.sizes()));
    }
  }
  return made;
}

// The largest difference of an element, of the largest element there is.
double difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor expected = b.to(at::kDouble);
  return (a.to(at::kDouble) - expected).abs().max().item<double>() /
         std::max(1.0, expected.abs().max().item<double>());
}

// float32: sums of up to 1000 products in another order; bfloat16: half a unit of the last place,
// of the rounding of the result, and what float32 moves across it.
double tolerance_of(at::ScalarType type) { return type == at::kFloat ? 2e-6 : 4.1e-3; }

// Around every border of a split and of a warp's share of it, some in a window.
const std::vector<SeenKeys> kLengths = {{.begin = 0, .end = 1},    {.begin = 0, .end = 31},
                                        {.begin = 0, .end = 127},  {.begin = 0, .end = 256},
                                        {.begin = 0, .end = 257},  {.begin = 5, .end = 519},
                                        {.begin = 77, .end = 900}, {.begin = 699, .end = 700},
                                        {.begin = 0, .end = 255},  {.begin = 3, .end = 20}};
const at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16};

}  // namespace

TEST_CASE("the splits of a row cover its keys once, and their number is the row's own") {
  CHECK(splits_of(0) == 0);
  CHECK(splits_of(1) == 1);
  CHECK(splits_of(kSplitKeys) == 1);
  CHECK(splits_of(kSplitKeys + 1) == 2);
  CHECK(splits_of(std::int64_t{1} << 40) == (std::int64_t{1} << 40) / kSplitKeys);
}

TEST_CASE("the blocks of a row take each of its heads once, and those of one key head alone") {
  for (const Shape shape : {Shape{1, 1, 64}, Shape{28, 4, 64}, Shape{24, 8, 64}, Shape{40, 2, 64},
                            Shape{9, 1, 64}, Shape{16, 16, 64}}) {
    const std::int64_t group = shape.heads / shape.kv_heads;
    const int most = heads_of_block(group);
    CAPTURE(shape.heads, shape.kv_heads, most);
    REQUIRE((most >= group || most == kMostGroup));
    std::int64_t next = 0;
    for (std::int64_t i = 0; i < head_shares(shape.heads, shape.kv_heads, most); ++i) {
      const HeadShare share = head_share(shape.heads, shape.kv_heads, most, i);
      CHECK(share.first == next);
      CHECK((share.count >= 1 && share.count <= most));
      CHECK(share.first / group == share.kv_head);
      CHECK((share.first + share.count - 1) / group == share.kv_head);
      next += share.count;
    }
    CHECK(next == shape.heads);
  }
}

TEST_CASE("the reference of decode attention is the CPU's attention over slots") {
  for (const Shape shape : {Shape{4, 4, 64}, Shape{14, 2, 80}, Shape{6, 1, 128}}) {
    const Slots slots = slots_of(shape, kLengths);

    const at::Tensor present = attend_slots(slots.q, slots.keys, slots.values, slots.seen);

    CHECK(difference(slots.by_reference(), present) < tolerance_of(at::kFloat));
  }
}

TEST_CASE("decode attention's kernel gives its ATen version's values for every head size") {
  for (const at::ScalarType type : kTypes) {
    for (const std::int64_t dim : {64, 80, 96, 128}) {
      for (const auto& [heads, kv_heads] : {std::pair{2, 2}, {4, 2}, {3, 1}, {14, 2}}) {
        CAPTURE(type, dim, heads, kv_heads);
        const Slots slots = slots_of({heads, kv_heads, dim}, kLengths, type);
        CHECK(difference(slots.by_kernel(), slots.by_reference()) <= tolerance_of(type));
      }
    }
  }
}

TEST_CASE("a key head may be shared by more heads than one block takes") {
  for (const at::ScalarType type : kTypes) {
    for (const std::int64_t heads : {9, 16, 20}) {
      const Slots slots = slots_of({heads, 1, 64}, kLengths, type);
      CHECK(difference(slots.by_kernel(), slots.by_reference()) <= tolerance_of(type));
    }
  }
}

TEST_CASE("no thread of decode attention needs what another does in the same phase") {
  for (const at::ScalarType type : kTypes) {
    for (const std::int64_t dim : {64, 80, 128}) {
      const Slots slots = slots_of({14, 2, dim}, kLengths, type);
      CHECK(at::equal(slots.by_kernel(ThreadOrder::kForwards),
                      slots.by_kernel(ThreadOrder::kBackwards)));
    }
  }
}

TEST_CASE("the bits of decode attention's rows do not depend on their neighbours") {
  const Slots all = slots_of({8, 2, 64}, kLengths, at::kBFloat16);
  const at::Tensor together = all.by_kernel();
  for (std::int64_t row = 0; row < all.q.size(0); ++row) {
    const auto one = [&](const at::Tensor& x) { return x.narrow(0, row, 1); };
    const Slots alone{
        one(all.q), one(all.keys), one(all.values), {all.seen[static_cast<std::size_t>(row)]}};
    CHECK(at::equal(alone.by_kernel(), one(together)));
  }
}

TEST_CASE("a key or value that is no number spoils its own row of decode attention alone") {
  for (const at::ScalarType type : kTypes) {
    for (const bool is_key : {true, false}) {
      const Slots slots = slots_of({4, 2, 64}, {kLengths.begin() + 3, kLengths.begin() + 7}, type);
      const at::Tensor& half = is_key ? slots.keys : slots.values;
      half.select(0, 2).select(0, 6).fill_(NAN);  // in the first of the splits of row 2

      const at::Tensor nan = at::isnan(slots.by_kernel());

      CHECK(nan.select(0, 2).all().item<bool>());
      for (const std::int64_t row : {0, 1, 3}) CHECK_FALSE(nan.select(0, row).any().item<bool>());
    }
  }
}

TEST_CASE("decode attention reads nothing behind its queries and a cache that its row fills") {
  for (const at::ScalarType type : kTypes) {
    for (const std::int64_t length : {1, 100, 129, 300}) {
      const Slots slots = slots_of({8, 2, 80}, {{.begin = 0, .end = length}}, type);
      const auto filled = [&](const at::Tensor& half) {
        return before_a_fence(half.narrow(0, 0, 1).narrow(1, 0, length));
      };
      const Slots full{before_a_fence(slots.q), filled(slots.keys), filled(slots.values),
                       slots.seen};
      CHECK(at::equal(full.by_kernel(), slots.by_kernel()));
    }
  }
}

TEST_CASE("scores of decode attention that overflow give what softmax gives") {
  for (const at::ScalarType type : kTypes) {
    for (const float factor : {INFINITY, -INFINITY, 1e30F, -1e30F}) {
      Slots slots =
          slots_of({2, 1, 64}, {{.begin = 0, .end = 300}, {.begin = 0, .end = 100}}, type);
      slots.q.abs_().add_(0.5);
      // The whole first split of row 0: its scores are all the same, infinite or huge.
      slots.keys.select(0, 0).narrow(0, 0, kSplitKeys).fill_(factor);

      const at::Tensor got = slots.by_kernel(), expected = slots.by_reference();

      CAPTURE(type, factor);
      CHECK(at::equal(at::isnan(got), at::isnan(expected)));
      CHECK(at::isnan(got).any().item<bool>() == (factor == INFINITY));
      const at::Tensor error = (got.to(at::kFloat) - expected.to(at::kFloat)).abs();
      const float most = error.masked_fill(at::isnan(expected), 0).max().item<float>();
      CHECK(most <= (type == at::kFloat ? 1e-5F : 1.6e-2F));
    }
  }
}

TEST_CASE("powers of decode attention count with more bits than a stored number has") {
  // Of 256 keys the even ones score a third of a binary digit less; values cancel but for 2^-9 of
  // the odd ones' share, which is lost where a power is rounded to 8 bits.
  const Slots slots = slots_of({1, 1, 64}, {{.begin = 0, .end = 256}}, at::kBFloat16);
  slots.q.fill_(1);
  const at::Tensor keys = slots.keys.select(0, 0).narrow(0, 0, 256);
  const at::Tensor values = slots.values.select(0, 0).narrow(0, 0, 256);
  for (std::int64_t key = 0; key < 256; ++key) {
    keys.select(0, key).fill_(key % 2 == 0 ? -0.03 : 0.0);
    values.select(0, key).fill_(key % 2 == 0 ? -1.0 : 0.7852);
  }
  const at::Tensor expected = slots.by_reference().to(at::kFloat);
  CHECK(difference(slots.by_kernel(), expected) < 1e-5);
}
