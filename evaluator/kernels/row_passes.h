// Passes over float32 rows on the CPU that libtorch would make several of, each with a tensor of
// its own between. No libtorch.
#pragma once

#include <cstdint>

namespace evalcar::kernels {

/// Numbers for one thread, at least: below, waking another costs more than it brings.
constexpr std::int64_t kPassGrain = 32768;

/// y[m] = x[m] / sqrt(mean(x[m]²) + eps) · weight, of contiguous rows.
struct NormRows {
  const float* x = nullptr;       ///< (rows, width)
  const float* weight = nullptr;  ///< (width)
  float* y = nullptr;             ///< (rows, width)
  std::int64_t width = 0;
  float eps = 0;
};
void norm_rows(const NormRows& n, std::int64_t first, std::int64_t count);

/// Turns the pairs (x_i, x_{i + half}) of each head of a row by the row's angles: y_i = x_i cos_i -
/// x_{i + half} sin_i, y_{i + half} = x_{i + half} cos_i + x_i sin_i.
struct RotateRows {
  const float* x = nullptr;  ///< (rows, heads, 2 · half); the last axis is contiguous
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;
  const float* cos = nullptr;  ///< (rows, half)
  const float* sin = nullptr;  ///< (rows, half)
  float* y = nullptr;          ///< (rows, heads, 2 · half), contiguous
  std::int64_t heads = 0;
  std::int64_t half = 0;
};
void rotate_rows(const RotateRows& r, std::int64_t first, std::int64_t count);

/// Rows of queries, keys and values become queries and a part of the slot cache: heads normed,
/// where there are weights for it, and turned; each row by itself.
struct PlaceRows {
  const float* qkv = nullptr;     ///< (rows, heads + 2 · kv_heads, 2 · half), contiguous
  const float* q_norm = nullptr;  ///< (2 · half), or null: no norm
  const float* k_norm = nullptr;
  float eps = 0;
  const float* cos = nullptr;  ///< (rows, half)
  const float* sin = nullptr;
  const std::int64_t* slots = nullptr;   ///< (rows)
  const std::int64_t* places = nullptr;  ///< (rows)
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t half = 0;
  float* q = nullptr;     ///< (rows, heads, 2 · half), contiguous
  float* keys = nullptr;  ///< of slot 0, position 0; strides in floats
  float* values = nullptr;
  std::int64_t slot_stride = 0;
  std::int64_t position_stride = 0;
  std::int64_t head_stride = 0;
};
void place_rows(const PlaceRows& p, std::int64_t first, std::int64_t count);

/// up[i] = silu(gate[i]) · up[i].
void gate_numbers(const float* gate, float* up, std::int64_t count);

}  // namespace evalcar::kernels
