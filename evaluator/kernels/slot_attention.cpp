// Decoding reads each key and value once: what counts is that memory is read in its order, so the
// heads that share a key go over it together.
#include "evaluator/kernels/slot_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "evaluator/kernels/lanes.h"

namespace evalcar::kernels {
namespace {

// Keys whose values are mixed before the next: they stay in the first cache for all heads.
constexpr std::int64_t kKeysAtOnce = 64;
// How many keys ahead memory is asked for, which comes in pieces of one head.
constexpr std::int64_t kKeysAhead = 16;

/// One query head group over the keys of its slot.
struct Group {
  const float* q;  // (heads, dim)
  const float* k;
  const float* v;
  float* out;  // (heads, dim)
  std::int64_t heads, dim, stride, keys;
};

EVALCAR_IN_LANES void ask_for(const float* vector, std::int64_t dim) {
  for (std::int64_t d = 0; d < dim; d += kLanes) __builtin_prefetch(vector + d);
}

/// scores: (heads, keys), scaled and times log2(e).
EVALCAR_FOR_EACH_CPU
void score(const Group& g, float scale, float* scores, std::int64_t row) {
  const std::int64_t whole = g.dim / kLanes * kLanes;
  for (std::int64_t p = 0; p < g.keys; ++p) {
    const float* const key = g.k + p * g.stride;
    if (p + kKeysAhead < g.keys) ask_for(key + kKeysAhead * g.stride, g.dim);
    for (std::int64_t h = 0; h < g.heads; ++h) {
      const float* const q = g.q + h * g.dim;
      Lanes sums{};
      for (std::int64_t d = 0; d < whole; d += kLanes) {
        Lanes a, b;
        load(q + d, a);
        load(key + d, b);
        add_product(sums, a, b);
      }
      float sum = sum_of(sums);
      for (std::int64_t d = whole; d < g.dim; ++d) sum += q[d] * key[d];
      scores[h * row + p] = sum * scale;
    }
  }
}

/// 2^(scores - largest) in place, `row` of them, of which those behind the keys are -inf; returns
/// their sum.
EVALCAR_FOR_EACH_CPU
float weigh(float* scores, std::int64_t row) {
  Lanes most;
  fill(most, -std::numeric_limits<float>::infinity());
  for (std::int64_t at = 0; at < row; at += kLanes) {
    Lanes x;
    load(scores + at, x);
    raise(most, x);
  }
  float largest = most[0];
  for (std::int64_t i = 1; i < kLanes; ++i) largest = std::max(largest, most[i]);
  Lanes sums{};
  for (std::int64_t at = 0; at < row; at += kLanes) {
    Lanes x;
    load(scores + at, x);
    x -= largest;
    to_power_of_two(x);
    store(x, scores + at);
    sums += x;
  }
  return sum_of(sums);
}

/// Adds to kCount vectors of a head's result what `keys` weights make of the values.
template <int kCount>
EVALCAR_IN_LANES void mix_lanes(const float* weights, const float* values, std::int64_t stride,
                                std::int64_t keys, float* out) {
  Lanes sums[kCount];
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) load(out + i * kLanes, sums[i]);
  for (std::int64_t p = 0; p < keys; ++p) {
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) {
      Lanes value;
      load(values + p * stride + i * kLanes, value);
      add_product(sums[i], value, weights[p]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) store(sums[i], out + i * kLanes);
}

EVALCAR_FOR_EACH_CPU
void mix(const Group& g, const float* weights, std::int64_t row) {
  std::fill_n(g.out, g.heads * g.dim, 0.0F);
  const std::int64_t whole = g.dim / kLanes * kLanes;
  for (std::int64_t p = 0; p < g.keys; p += kKeysAtOnce) {
    const std::int64_t keys = std::min(kKeysAtOnce, g.keys - p);
    const float* const values = g.v + p * g.stride;
    const std::int64_t next = std::min(kKeysAtOnce, g.keys - p - keys);
    for (std::int64_t i = 0; i < next; ++i) ask_for(values + (keys + i) * g.stride, g.dim);
    for (std::int64_t h = 0; h < g.heads; ++h) {
      float* const out = g.out + h * g.dim;
      const float* const of_head = weights + h * row + p;
      std::int64_t d = 0;
      for (; d + 4 * kLanes <= whole; d += 4 * kLanes)
        mix_lanes<4>(of_head, values + d, g.stride, keys, out + d);
      for (; d < whole; d += kLanes) mix_lanes<1>(of_head, values + d, g.stride, keys, out + d);
      for (; d < g.dim; ++d) {
        for (std::int64_t i = 0; i < keys; ++i) out[d] += of_head[i] * values[i * g.stride + d];
      }
    }
  }
}

void attend_group(const Group& g, std::vector<float>& scores) {
  const std::int64_t row = (g.keys + kLanes - 1) / kLanes * kLanes;
  scores.assign(static_cast<std::size_t>(g.heads * row), -std::numeric_limits<float>::infinity());
  const auto scale =
      static_cast<float>(std::numbers::log2e / std::sqrt(static_cast<double>(g.dim)));
  score(g, scale, scores.data(), row);
  std::vector<float> totals(static_cast<std::size_t>(g.heads));
  for (std::int64_t h = 0; h < g.heads; ++h) {
    totals[static_cast<std::size_t>(h)] = weigh(scores.data() + h * row, row);
  }
  mix(g, scores.data(), row);
  for (std::int64_t h = 0; h < g.heads; ++h) {
    for (std::int64_t d = 0; d < g.dim; ++d)
      g.out[h * g.dim + d] /= totals[static_cast<std::size_t>(h)];
  }
}

}  // namespace

std::int64_t tasks_of(const SlotAttention& a) {
  return static_cast<std::int64_t>(a.seen.size()) * a.kv_heads;
}

void attend_slots(const SlotAttention& a, std::int64_t first, std::int64_t count) {
  std::vector<float> scores;
  const std::int64_t group = a.heads / a.kv_heads;
  for (std::int64_t task = first; task < first + count; ++task) {
    const std::int64_t slot = task / a.kv_heads, head = task % a.kv_heads;
    const SeenKeys& seen = a.seen[static_cast<std::size_t>(slot)];
    const std::int64_t at = slot * a.slot_stride + seen.begin * a.position_stride + head * a.dim;
    const std::int64_t query = (slot * a.heads + head * group) * a.dim;
    attend_group({.q = a.q + query,
                  .k = a.k + at,
                  .v = a.v + at,
                  .out = a.out + query,
                  .heads = group,
                  .dim = a.dim,
                  .stride = a.position_stride,
                  .keys = seen.end - seen.begin},
                 scores);
  }
}

}  // namespace evalcar::kernels
