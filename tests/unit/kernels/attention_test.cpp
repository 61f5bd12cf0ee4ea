#include "evaluator/kernels/attention.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/all.h>
#include <ATen/ops/any.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/item.h>
#include <ATen/ops/max.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

using namespace evalcar::kernels;

namespace {

struct Sequence {
  at::Tensor q, k, v;
  std::vector<SeenKeys> seen = {};
};

Sequence sequence_of(std::int64_t rows, std::int64_t keys, std::int64_t heads,
                     std::int64_t kv_heads, std::int64_t dim) {
  return {at::randn({rows, heads, dim}) * 2.0, at::randn({keys, kv_heads, dim}) * 2.0,
          at::randn({keys, kv_heads, dim})};
}

at::Tensor ours(const Sequence& s) {
  const at::Tensor out = at::full(s.q.sizes(), -7.0, s.q.options());
  const AttentionRows rows{.q = s.q, .k = s.k, .v = s.v, .out = out, .seen = s.seen};
  attend({&rows, 1});
  return out;
}

// libtorch's, in the dtype that is given.
at::Tensor reference(const Sequence& s, at::ScalarType type = at::kDouble) {
  const std::int64_t group = s.q.size(1) / s.k.size(1);
  const auto heads_first = [&](const at::Tensor& x) { return x.to(type).transpose(0, 1); };
  const auto repeated = [&](const at::Tensor& x) {
    return heads_first(x)
        .unsqueeze(1)
        .expand({-1, group, -1, -1})
        .reshape({s.q.size(1), x.size(0), x.size(2)});
  };
  std::optional<at::Tensor> mask;
  if (!s.seen.empty()) {
    mask = at::full({s.q.size(0), s.k.size(0)}, -std::numeric_limits<double>::infinity(),
                    at::TensorOptions().dtype(type));
    for (std::size_t i = 0; i < s.seen.size(); ++i) {
      at::Tensor row = mask->select(0, static_cast<std::int64_t>(i));
      const SeenKeys& seen = s.seen[i];
      row.narrow(0, seen.shared_begin, seen.shared_end - seen.shared_begin).zero_();
      row.narrow(0, seen.begin, seen.end - seen.begin).zero_();
    }
  }
  return at::scaled_dot_product_attention(heads_first(s.q), repeated(s.k), repeated(s.v), mask)
      .transpose(0, 1);
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b).abs().max().item<double>();
}

// The last `rows` of `keys` positions, each of which sees those up to itself, `window` at most.
std::vector<SeenKeys> causal(std::int64_t rows, std::int64_t keys, std::int64_t window) {
  std::vector<SeenKeys> seen;
  for (std::int64_t place = keys - rows; place < keys; ++place)
    seen.push_back({.begin = std::max<std::int64_t>(0, place + 1 - window), .end = place + 1});
  return seen;
}

}  // namespace

TEST_CASE("rows that see all keys attend as libtorch's do, for heads of any dimension") {
  if (!has_attention_kernel(at::zeros({1}))) SKIP("no kernel for this CPU");
  for (const std::int64_t dim : {16, 32, 64, 72, 80, 128}) {
    for (const auto& [rows, keys] : {std::pair{1, 1}, {33, 31}, {64, 64}, {70, 700}, {2500, 300}}) {
      const Sequence s = sequence_of(rows, keys, 2, 2, dim);
      CAPTURE(dim, rows, keys);
      CHECK(difference(ours(s), reference(s)) < 1e-5);
    }
  }
}

TEST_CASE("attention is as near to the true result as libtorch's in float32") {
  if (!has_attention_kernel(at::zeros({1}))) SKIP("no kernel for this CPU");
  const Sequence s = sequence_of(200, 1000, 2, 2, 64);
  const at::Tensor exact = reference(s);

  const auto error = [&](const at::Tensor& y) {
    return (y.to(at::kDouble) - exact).pow(2).sum().sqrt().item<double>();
  };

  CAPTURE(error(ours(s)), error(reference(s, at::kFloat)));
  CHECK(error(ours(s)) < 1.5 * error(reference(s, at::kFloat)));
}

TEST_CASE("a row attends to the keys that it sees, in a line, a window or a branch") {
  if (!has_attention_kernel(at::zeros({1}))) SKIP("no kernel for this CPU");
  Sequence s = sequence_of(300, 800, 6, 2, 64);
  for (const std::int64_t window : {1, 20, 300, 1000}) {
    s.seen = causal(300, 800, window);
    CAPTURE(window);
    CHECK(difference(ours(s), reference(s)) < 1e-5);
  }
  s.seen.clear();
  for (std::int64_t row = 0; row < 300; ++row)  // branches of 50 behind 500 shared positions
    s.seen.push_back({.shared_begin = row % 3 == 0 ? row : 0,
                      .shared_end = 500,
                      .begin = 500 + row / 50 * 50,
                      .end = 501 + row});
  CHECK(difference(ours(s), reference(s)) < 1e-5);
}

TEST_CASE("keys and values may lie among others in memory, and so may the result") {
  if (!has_attention_kernel(at::zeros({1}))) SKIP("no kernel for this CPU");
  const at::Tensor all = at::randn({90, 3, 4, 80});
  const Sequence s{all.select(1, 0), all.select(1, 1), all.select(1, 2)};
  const at::Tensor space = at::zeros({90, 5, 80});
  const at::Tensor out = space.narrow(1, 1, 4);

  const AttentionRows rows{.q = s.q, .k = s.k, .v = s.v, .out = out};
  attend({&rows, 1});

  CHECK(difference(out, reference(s)) < 1e-5);
  CHECK(space.select(1, 0).abs().max().item<float>() == 0);
}

TEST_CASE("a sequence attends with the same bits alone, beside others and on any threads") {
  if (!has_attention_kernel(at::zeros({1}))) SKIP("no kernel for this CPU");
  const int threads = at::get_num_threads();
  std::vector<Sequence> sequences = {sequence_of(130, 400, 4, 2, 64), sequence_of(40, 40, 4, 2, 64),
                                     sequence_of(1300, 600, 4, 2, 64),
                                     sequence_of(1300, 1400, 4, 2, 64)};
  sequences.back().seen = causal(1300, 1400, 301);
  for (const int count : {1, 3}) {
    at::set_num_threads(count);
    std::vector<AttentionRows> together;
    for (const Sequence& s : sequences)
      together.push_back(
          {.q = s.q, .k = s.k, .v = s.v, .out = at::zeros(s.q.sizes()), .seen = s.seen});
    attend(together);
    at::set_num_threads(1);
    for (std::size_t i = 0; i < sequences.size(); ++i)
      CHECK(at::equal(together[i].out, ours(sequences[i])));
  }
  at::set_num_threads(threads);
}

TEST_CASE("a key that is no number reaches the rows that see it, and no others") {
  if (!has_attention_kernel(at::zeros({1}))) SKIP("no kernel for this CPU");
  Sequence s = sequence_of(100, 100, 1, 1, 64);
  s.seen = causal(100, 100, 1000);
  s.k.select(0, 60).fill_(std::numeric_limits<float>::quiet_NaN());

  const at::Tensor none = ours(s).isnan().sum(-1).select(1, 0);

  CHECK(none.narrow(0, 0, 60).sum().item<std::int64_t>() == 0);
  CHECK(none.narrow(0, 60, 40).sum().item<std::int64_t>() == 40 * 64);
}

TEST_CASE("a sequence of no numbers leaves nothing behind for the next, whatever its dimension") {
  if (!has_attention_kernel(at::zeros({1}))) SKIP("no kernel for this CPU");
  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // the memory of one thread
  for (const std::int64_t dim : {64, 72, 80}) {
    Sequence none = sequence_of(2500, 300, 1, 1, dim);
    for (const at::Tensor& x : {none.q, none.k, none.v})
      x.fill_(std::numeric_limits<float>::quiet_NaN());
    const Sequence next = sequence_of(37, 45, 1, 1, dim);
    const at::Tensor expected = ours(next);
    ours(none);
    CAPTURE(dim);
    CHECK(at::equal(ours(next), expected));
    CHECK(difference(expected, reference(next)) < 1e-5);
  }
  at::set_num_threads(threads);
}

namespace {

struct Slots {
  at::Tensor q, keys, values;
  std::vector<SeenKeys> seen;

  at::Tensor attended() const { return attend_slots(q, keys, values, seen); }
  // libtorch's in float64, slot by slot.
  at::Tensor expected(std::int64_t slot) const {
    const SeenKeys& each = seen[static_cast<std::size_t>(slot)];
    const auto part = [&](const at::Tensor& x) {
      return x.select(0, slot).narrow(0, each.begin, each.end - each.begin);
    };
    return reference({q.narrow(0, slot, 1), part(keys), part(values)});
  }
};

// Slots of a cache that has more of them, and places behind what they see that hold no numbers.
Slots slots_of(std::int64_t count, std::int64_t heads, std::int64_t kv_heads, std::int64_t dim) {
  const std::int64_t capacity = 70;
  Slots made{at::randn({count, heads, dim}) * 2.0,
             at::randn({count + 2, capacity, kv_heads, dim}) * 2.0,
             at::randn({count + 2, capacity, kv_heads, dim}),
             {}};
  for (std::int64_t slot = 0; slot < count; ++slot) {
    const std::int64_t end = 1 + slot * 23 % (capacity - 1);
    made.seen.push_back({.begin = slot % 3 == 2 ? end / 2 : 0, .end = end});
    for (const at::Tensor& half : {made.keys, made.values})
      half.select(0, slot).narrow(0, end, capacity - end).fill_(NAN);
  }
  return made;
}

}  // namespace

TEST_CASE("a row of each slot attends to its own keys, as libtorch's attention does in float64") {
  struct Shape {
    std::int64_t heads, kv_heads, dim;
  };
  for (const Shape shape : {Shape{4, 4, 64}, Shape{8, 2, 80}, Shape{6, 1, 16}, Shape{2, 2, 20}}) {
    INFO(shape.heads << " " << shape.dim);
    const Slots slots = slots_of(9, shape.heads, shape.kv_heads, shape.dim);
    const at::Tensor got = slots.attended();
    for (std::int64_t slot = 0; slot < 9; ++slot) {
      INFO(slot);
      const at::Tensor expected = slots.expected(slot);
      const double error =
          (got.narrow(0, slot, 1).to(at::kDouble) - expected).abs().max().item<double>();
      CHECK(error < 2e-6 * std::max(1.0, expected.abs().max().item<double>()));
    }
  }
}

TEST_CASE("the bits of a slot's row depend neither on the other slots nor on the threads") {
  const Slots slots = slots_of(7, 8, 2, 64);
  const at::Tensor together = slots.attended();
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  for (std::int64_t count : {1, 3, 7}) {
    const Slots some{slots.q.narrow(0, 0, count),
                     slots.keys,
                     slots.values,
                     {slots.seen.begin(), slots.seen.begin() + count}};
    CHECK(at::equal(some.attended(), together.narrow(0, 0, count)));
  }
  at::set_num_threads(threads);
}

TEST_CASE("a slot whose keys are no numbers spoils its own row, and no other") {
  const Slots slots = slots_of(3, 4, 2, 32);
  slots.keys.select(0, 1).select(0, 0).fill_(NAN);
  const at::Tensor got = slots.attended();
  CHECK(at::isnan(got.select(0, 1)).all().item<bool>());
  CHECK_FALSE(at::isnan(got.select(0, 0)).any().item<bool>());
  CHECK_FALSE(at::isnan(got.select(0, 2)).any().item<bool>());
}
