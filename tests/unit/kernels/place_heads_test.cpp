#include "evaluator/kernels/place_heads.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "evaluator/kernels/place_heads_block.h"
#include "tests/unit/kernels/emulated_block.h"

using namespace evalcar::kernels;
using evalcar::testing::EmulatedBlock;
using evalcar::testing::ThreadOrder;

namespace {

constexpr double kUntouched = -7;

struct Case {
  PackedHeads heads;
  CachePlace place;
};

// Rows of three slots in no order, in a layer of a cache.
Case case_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t dim, at::ScalarType type,
             bool norms) {
  const std::vector<std::int64_t> slots = {0, 0, 2, 1, 2, 2, 0}, places = {3, 4, 0, 8, 2, 1, 0};
  const auto rows = static_cast<std::int64_t>(slots.size());
  const at::Tensor angles = at::rand({rows, 1, dim / 2}).mul_(100);
  const auto norm = [&] { return norms ? at::randn({dim}).to(type) : at::Tensor(); };
  const auto cache = [&] {
    return at::full({2, 3, 9, kv_heads, dim}, kUntouched, at::TensorOptions().dtype(type))
        .select(0, 1);
  };
  return {{.qkv = at::randn({rows, heads + 2 * kv_heads, dim}).mul_(3.0).to(type),
           .q_norm = norm(),
           .k_norm = norm(),
           .eps = 1e-6,
           .cos = angles.cos().to(type),
           .sin = angles.sin().to(type),
           .heads = heads},
          {.slots = at::tensor(slots),
           .places = at::tensor(places),
           .keys = cache(),
           .values = cache()}};
}

struct Placed {
  at::Tensor q, keys, values;
};

Placed with_cache(const Case& c, const auto& place) {
  CachePlace own = c.place;
  own.keys = c.place.keys.clone();
  own.values = c.place.values.clone();
  return {place(c.heads, own), own.keys, own.values};
}

template <int kVectors, typename T>
void run_grid(const PlaceHeads<T>& p, ThreadOrder order) {
  for (std::int64_t number = 0; number * kHeadsOfBlock < p.tasks(); ++number) {
    EmulatedBlock<PlaceOwn<T, kVectors>> block(kPlaceThreads, order);
    place_heads_of_block<kVectors>(p, number, block);
  }
}

template <typename T>
void run_blocks(const PackedHeads& heads, const CachePlace& place, const at::Tensor& q,
                ThreadOrder order) {
  const auto data = [](const at::Tensor& x) {
    return x.defined() ? static_cast<T*>(x.mutable_data_ptr()) : nullptr;
  };
  const PlaceHeads<T> p{.qkv = data(heads.qkv),
                        .q_norm = data(heads.q_norm),
                        .k_norm = data(heads.k_norm),
                        .eps = static_cast<float>(heads.eps),
                        .cos = data(heads.cos),
                        .sin = data(heads.sin),
                        .slots = place.slots.const_data_ptr<std::int64_t>(),
                        .places = place.places.const_data_ptr<std::int64_t>(),
                        .rows = heads.qkv.size(0),
                        .heads = heads.heads,
                        .kv_heads = place.keys.size(2),
                        .half = heads.qkv.size(2) / 2,
                        .q = data(q),
                        .keys = data(place.keys),
                        .values = data(place.values),
                        .slot_stride = place.keys.stride(0),
                        .position_stride = place.keys.stride(1),
                        .head_stride = place.keys.stride(2)};
  const std::int64_t vectors = place_vectors<T>(p.half);
  if (vectors == 1) return run_grid<1>(p, order);
  if (vectors == 2) return run_grid<2>(p, order);
  REQUIRE(vectors <= kMostPlaceVectors);
  run_grid<kMostPlaceVectors>(p, order);
}

Placed emulated(const Case& c, ThreadOrder order = ThreadOrder::kForwards) {
  return with_cache(c, [order](const PackedHeads& heads, const CachePlace& place) {
    const at::Tensor q = at::full({heads.qkv.size(0), heads.heads, heads.qkv.size(2)},
                                  std::numeric_limits<double>::quiet_NaN(), heads.qkv.options());
    if (heads.qkv.scalar_type() == at::kFloat) {
      run_blocks<float>(heads, place, q, order);
    } else {
      run_blocks<BFloat16>(heads, place, q, order);
    }
    return q;
  });
}

Placed expected(const Case& c) { return with_cache(c, place_heads_reference); }

// Of the largest element there is.
double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() /
         b.to(at::kDouble).abs().max().item<double>();
}

}  // namespace

TEST_CASE(
    "the kernel that places heads gives the bits of ATen's operations where there is no norm") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t dim : {16, 64, 80, 96, 128, 256}) {
      for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {14, 2}, {3, 3}}) {
        CAPTURE(type, dim, heads, kv_heads);
        const Case c = case_of(heads, kv_heads, dim, type, false);
        const Placed got = emulated(c), wanted = expected(c);
        CHECK(at::equal(got.q, wanted.q));
        CHECK(at::equal(got.keys, wanted.keys));  // what no row goes to, too
        CHECK(at::equal(got.values, wanted.values));
      }
    }
  }
}

TEST_CASE("the kernel that places heads norms queries and keys, each by its weight") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t dim : {64, 128, 240}) {
      CAPTURE(type, dim);
      const Case c = case_of(6, 2, dim, type, true);
      const Placed got = emulated(c), wanted = expected(c);
      // The squares are added up in another order: a number may be rounded to the other side in
      // each of four roundings.
      const double tolerance = type == at::kFloat ? 5e-7 : 1.2e-2;
      CHECK(difference(got.q, wanted.q) < tolerance);
      CHECK(difference(got.keys, wanted.keys) < tolerance);
      CHECK(at::equal(got.values, wanted.values));
    }
  }
}

TEST_CASE("no thread that places heads needs what another does in the same phase") {
  const Case c = case_of(14, 2, 128, at::kBFloat16, true);
  const Placed got = emulated(c), backwards = emulated(c, ThreadOrder::kBackwards);
  CHECK(at::equal(got.q, backwards.q));
  CHECK(at::equal(got.keys, backwards.keys));
  CHECK(at::equal(got.values, backwards.values));
}

TEST_CASE("a head that holds a NaN is placed as one, and no other") {
  const Case c = case_of(2, 1, 64, at::kFloat, true);
  c.heads.qkv.select(0, 3).select(0, 1).narrow(0, 5, 1).fill_(NAN);  // query head 1 of row 3

  const Placed got = emulated(c);

  CHECK(got.q.isnan().sum().item<std::int64_t>() == 64);
  CHECK(got.q.select(0, 3).select(0, 1).isnan().all().item<bool>());
  CHECK_FALSE(got.keys.isnan().any().item<bool>());
}

// ---- on the CPU ----

namespace {

Placed placed(const Case& c) { return with_cache(c, place_heads); }

}  // namespace

TEST_CASE("on the CPU heads are placed in one pass, to the cache's rows alone") {
  for (const bool norms : {false, true}) {
    for (const std::int64_t dim : {2, 16, 30, 64, 80, 128}) {
      for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {14, 2}, {3, 3}}) {
        CAPTURE(norms, dim, heads, kv_heads);
        const Case c = case_of(heads, kv_heads, dim, at::kFloat, norms);
        REQUIRE(has_place_kernel(c.heads, c.place));
        const Placed got = placed(c), wanted = expected(c);
        CHECK(difference(got.q, wanted.q) < 5e-7);
        CHECK(difference(got.keys, wanted.keys) < 5e-7);
        CHECK(at::equal(got.keys == kUntouched, wanted.keys == kUntouched));
        CHECK(at::equal(got.values, wanted.values));  // what no row goes to, too
      }
    }
  }
}

TEST_CASE("on the CPU a row is placed with the same bits alone and among others, on any threads") {
  const int threads = at::get_num_threads();
  const Case c = case_of(600, 100, 64, at::kFloat, true);  // enough for several threads
  at::set_num_threads(3);
  const Placed all = placed(c);
  at::set_num_threads(1);
  for (std::int64_t row = 0; row < c.heads.qkv.size(0); ++row) {
    Case one = c;
    for (at::Tensor* x :
         {&one.heads.qkv, &one.heads.cos, &one.heads.sin, &one.place.slots, &one.place.places})
      *x = x->narrow(0, row, 1);
    const Placed alone = placed(one);
    CHECK(at::equal(alone.q, all.q.narrow(0, row, 1)));
    const auto at_place = [&](const at::Tensor& cache) {
      return cache.select(0, one.place.slots.item<std::int64_t>())
          .select(0, one.place.places.item<std::int64_t>());
    };
    CHECK(at::equal(at_place(alone.keys), at_place(all.keys)));
    CHECK(at::equal(at_place(alone.values), at_place(all.values)));
  }
  at::set_num_threads(threads);
}

TEST_CASE("what is not float32 or does not lie plainly is not placed on the CPU") {
  const Case half = case_of(4, 2, 64, at::kBFloat16, true);
  CHECK_FALSE(has_place_kernel(half.heads, half.place));
  Case apart = case_of(4, 2, 64, at::kFloat, false);
  apart.heads.qkv = apart.heads.qkv.transpose(1, 2).contiguous().transpose(1, 2);
  CHECK_FALSE(has_place_kernel(apart.heads, apart.place));
}

TEST_CASE("on the CPU no row is placed where the cache has no place") {
  for (const std::int64_t wrong : {-1, 9}) {
    Case c = case_of(4, 2, 64, at::kFloat, false);
    c.place.places = c.place.places.clone();
    c.place.places.select(0, 3).fill_(wrong);
    CHECK_THROWS_AS(place_heads(c.heads, c.place), c10::Error);
    c.place.places.select(0, 3).fill_(0);
    c.place.slots = c.place.slots.clone();
    c.place.slots.select(0, 2).fill_(wrong);
    CHECK_THROWS_AS(place_heads(c.heads, c.place), c10::Error);
  }
}
