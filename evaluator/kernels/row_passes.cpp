#include "evaluator/kernels/row_passes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "evaluator/kernels/lanes.h"

namespace evalcar::kernels {
namespace {

/// `y` may be `x`.
EVALCAR_IN_LANES void norm_one(const float* x, const float* weight, float eps, std::int64_t width,
                               float* y) {
  const std::int64_t whole = width / kLanes * kLanes;
  Lanes squares{};
  for (std::int64_t k = 0; k < whole; k += kLanes) {
    Lanes values;
    load(x + k, values);
    add_product(squares, values, values);
  }
  float sum = sum_of(squares);
  for (std::int64_t k = whole; k < width; ++k) sum += x[k] * x[k];
  const float scale = 1 / std::sqrt(sum / static_cast<float>(width) + eps);
  for (std::int64_t k = 0; k < whole; k += kLanes) {
    Lanes values, weights;
    load(x + k, values);
    load(weight + k, weights);
    values *= scale;
    values *= weights;
    store(values, y + k);
  }
  for (std::int64_t k = whole; k < width; ++k) y[k] = x[k] * scale * weight[k];
}

/// One head. `y` may be `x`.
EVALCAR_IN_LANES void rotate_one(const float* x, const float* cos, const float* sin,
                                 std::int64_t half, float* y) {
  const std::int64_t whole = half / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    Lanes a, b, c, s;
    load(x + i, a);
    load(x + half + i, b);
    load(cos + i, c);
    load(sin + i, s);
    store({a.low * c.low - b.low * s.low, a.high * c.high - b.high * s.high}, y + i);
    store({b.low * c.low + a.low * s.low, b.high * c.high + a.high * s.high}, y + half + i);
  }
  for (std::int64_t i = whole; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    y[i] = a * cos[i] - b * sin[i];
    y[half + i] = b * cos[i] + a * sin[i];
  }
}

/// up *= silu(gate).
EVALCAR_IN_LANES void gate_lanes(const Lanes& gate, Lanes& up) {
  Lanes shrunk = gate;
  shrunk *= static_cast<float>(-std::numbers::log2e);
  to_power_of_two(shrunk);
  up.low *= gate.low / (1.0F + shrunk.low);
  up.high *= gate.high / (1.0F + shrunk.high);
}

}  // namespace

EVALCAR_FOR_EACH_CPU
void norm_rows(const NormRows& n, std::int64_t first, std::int64_t count) {
  for (std::int64_t m = first; m < first + count; ++m)
    norm_one(n.x + m * n.width, n.weight, n.eps, n.width, n.y + m * n.width);
}

EVALCAR_FOR_EACH_CPU
void rotate_rows(const RotateRows& r, std::int64_t first, std::int64_t count) {
  for (std::int64_t m = first; m < first + count; ++m) {
    for (std::int64_t h = 0; h < r.heads; ++h) {
      rotate_one(r.x + m * r.row_stride + h * r.head_stride, r.cos + m * r.half, r.sin + m * r.half,
                 r.half, r.y + (m * r.heads + h) * 2 * r.half);
    }
  }
}

EVALCAR_FOR_EACH_CPU
void place_rows(const PlaceRows& p, std::int64_t first, std::int64_t count) {
  const std::int64_t dim = 2 * p.half;
  for (std::int64_t m = first; m < first + count; ++m) {
    const float* x = p.qkv + m * (p.heads + 2 * p.kv_heads) * dim;
    const std::int64_t place = p.slots[m] * p.slot_stride + p.places[m] * p.position_stride;
    for (std::int64_t h = 0; h < p.heads + p.kv_heads; ++h, x += dim) {
      const bool is_query = h < p.heads;
      float* const to =
          is_query ? p.q + (m * p.heads + h) * dim : p.keys + place + (h - p.heads) * p.head_stride;
      const float* const norm = is_query ? p.q_norm : p.k_norm;
      if (norm != nullptr) norm_one(x, norm, p.eps, dim, to);
      rotate_one(norm != nullptr ? to : x, p.cos + m * p.half, p.sin + m * p.half, p.half, to);
    }
    for (std::int64_t h = 0; h < p.kv_heads; ++h, x += dim)
      std::copy(x, x + dim, p.values + place + h * p.head_stride);
  }
}

EVALCAR_FOR_EACH_CPU
void gate_numbers(const float* gate, float* up, std::int64_t count) {
  const std::int64_t whole = count / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    Lanes g, u;
    load(gate + i, g);
    load(up + i, u);
    gate_lanes(g, u);
    store(u, up + i);
  }
  if (whole == count) return;
  Lanes g{}, u{};
  const auto bytes = static_cast<std::size_t>(count - whole) * sizeof(float);
  std::memcpy(&g, gate + whole, bytes);
  std::memcpy(&u, up + whole, bytes);
  gate_lanes(g, u);
  std::memcpy(up + whole, &u, bytes);
}

}  // namespace evalcar::kernels
