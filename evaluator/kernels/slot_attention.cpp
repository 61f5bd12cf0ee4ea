// Decoding reads each key and value once: what counts is that memory is read in its order, so the
// heads that share a key go over it together.
#include "evaluator/kernels/slot_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

#include "evaluator/kernels/lanes.h"

namespace evalcar::kernels {
namespace {

using WholeLanes [[gnu::vector_size(sizeof(std::int32_t) * kLanes)]] = std::int32_t;

/// One query head group over the keys of its slot.
struct Group {
  const float* q;  // (heads, dim)
  const float* k;
  const float* v;
  float* out;  // (heads, dim)
  std::int64_t heads, dim, stride, keys;
};

/// scores: (heads, keys), scaled and times log2(e).
EVALCAR_FOR_EACH_CPU
void score(const Group& g, float scale, float* scores, std::int64_t row) {
  const std::int64_t whole = g.dim / kLanes * kLanes;
  for (std::int64_t p = 0; p < g.keys; ++p) {
    const float* const key = g.k + p * g.stride;
    for (std::int64_t h = 0; h < g.heads; ++h) {
      const float* const q = g.q + h * g.dim;
      Lanes sums{};
      for (std::int64_t d = 0; d < whole; d += kLanes) {
        Lanes a, b;
        std::memcpy(&a, q + d, sizeof(a));
        std::memcpy(&b, key + d, sizeof(b));
        sums += a * b;
      }
      float sum = 0;
      for (std::int64_t i = 0; i < kLanes; ++i) sum += sums[i];
      for (std::int64_t d = whole; d < g.dim; ++d) sum += q[d] * key[d];
      scores[h * row + p] = sum * scale;
    }
  }
}

/// 2^(scores - largest) in place, `row` of them, of which those from `keys` on are -inf; returns
/// their sum. 2^x on [-0.5, 0.5] is the polynomial of tile_terms.h; below 2^-126 it is that.
EVALCAR_FOR_EACH_CPU
float weigh(float* scores, std::int64_t row, float largest) {
  constexpr float kRounder = 12582912;  // 1.5 · 2^23: adding it leaves whole numbers
  Lanes sums{};
  for (std::int64_t at = 0; at < row; at += kLanes) {
    Lanes x;
    std::memcpy(&x, scores + at, sizeof(x));
    x -= largest;
    x = x < -126.0F ? Lanes{} - 126.0F : x;  // a NaN stays one
    const Lanes whole = (x + kRounder) - kRounder;
    const Lanes rest = x - whole;
    Lanes y = Lanes{} + 0.00015337577497120947F;
    y = y * rest + 0.0013399859890341759F;
    y = y * rest + 0.009618519805371761F;
    y = y * rest + 0.05550329014658928F;
    y = y * rest + 0.24022646248340607F;
    y = y * rest + 0.6931471824645996F;
    y = y * rest + 1.0F;
    const WholeLanes power = (__builtin_convertvector(whole, WholeLanes) + 127) << 23;
    Lanes scale;
    std::memcpy(&scale, &power, sizeof(scale));
    y *= scale;
    std::memcpy(scores + at, &y, sizeof(y));
    sums += y;
  }
  float sum = 0;
  for (std::int64_t i = 0; i < kLanes; ++i) sum += sums[i];
  return sum;
}

EVALCAR_FOR_EACH_CPU
void mix(const Group& g, const float* weights, std::int64_t row) {
  std::fill_n(g.out, g.heads * g.dim, 0.0F);
  const std::int64_t whole = g.dim / kLanes * kLanes;
  for (std::int64_t p = 0; p < g.keys; ++p) {
    const float* const value = g.v + p * g.stride;
    for (std::int64_t h = 0; h < g.heads; ++h) {
      float* const out = g.out + h * g.dim;
      const float weight = weights[h * row + p];
      for (std::int64_t d = 0; d < whole; d += kLanes) {
        Lanes sum, of_value;
        std::memcpy(&sum, out + d, sizeof(sum));
        std::memcpy(&of_value, value + d, sizeof(of_value));
        sum += of_value * weight;
        std::memcpy(out + d, &sum, sizeof(sum));
      }
      for (std::int64_t d = whole; d < g.dim; ++d) out[d] += weight * value[d];
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
    float* const of_head = scores.data() + h * row;
    float largest = of_head[0];
    for (std::int64_t p = 1; p < g.keys; ++p) largest = std::max(largest, of_head[p]);
    totals[static_cast<std::size_t>(h)] = weigh(of_head, row, largest);
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
