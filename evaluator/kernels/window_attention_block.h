// Attention inside the windows of a vision tower, everything with everything, in bfloat16 on the
// tensor cores: what a block of threads does, for the GPU and for a test without one. C++17, for
// nvcc.
//
// A block takes one head of one window, which has at most 64 rows; a warp takes 16 of them as
// queries. Scores are Q · Kᵀ and fit into registers: the softmax is exact. Its powers are, as they
// lie there, the operand of P · V. The order of the numbers that a product adds up is free, and so
// is which columns of a tile are which numbers: both are chosen so that each lane loads whole
// vectors straight into the registers that the product reads. What the warps of a block read twice
// comes from the nearest cache.
#pragma once

#include <cstdint>

#include "evaluator/kernels/device_numbers.h"
#include "evaluator/kernels/thread_block.h"

namespace evalcar::kernels {

constexpr int kWindowThreads = 128;
constexpr int kMostWindow = 64;  // rows

/// Strides count elements. Heads are contiguous, one behind the other; they and rows begin at
/// 16-byte boundaries.
struct WindowAttention {
  const BFloat16* q;  ///< (rows, heads, dim)
  const BFloat16* k;
  const BFloat16* v;
  std::int64_t q_stride, k_stride, v_stride;  ///< of a row
  const std::int32_t* begins;  ///< (windows + 1): a window ends where the next one begins
  std::int64_t heads;
  float scale;    ///< of the scores, times log2(e)
  BFloat16* out;  ///< (rows, heads · dim), contiguous
};

/// How a warp's lanes share a window. 64 numbers of a head, or 16 more.
template <int kDim>
struct WindowShape {
  static_assert(kDim == 64 || kDim == 80);
  static constexpr int kTiles = kMostWindow / 8;   // of keys, as columns of the scores
  static constexpr int kSteps = kMostWindow / 16;  // of keys, as rows of the values
  static constexpr int kFours = kDim / 32;         // a vector for each of four lanes: two products
  static constexpr int kEights = kDim / 64;        // a vector for each of eight: eight tiles
  static constexpr bool kHasRest = kDim % 64 != 0;
  static constexpr int kRest = kDim / 64 * 64;  // where the last 16 numbers begin
  static constexpr int kMixed = kDim / 8;       // tiles

  /// A thread's registers.
  struct Own {
    Words q[2][kFours];
    std::uint32_t q_rest[2][2];
    Words keys[kTiles][kFours];
    std::uint32_t keys_rest[kTiles][2];
    float scores[kTiles][4];
    float largest[2];
    float sums[2];
    std::uint32_t powers[kSteps][4];
    Words values[kSteps][4][kEights];
    std::uint32_t values_rest[kSteps][4];
    float mixed[kMixed][4];
  };
};

/// One head of one window.
template <int kDim, typename Block>
EVALCAR_DEVICE void attend_window(const WindowAttention& a, std::int64_t window, std::int64_t head,
                                  Block& block) {
  using Shape = WindowShape<kDim>;
  using Own = typename Shape::Own;
  const std::int64_t begin = a.begins[window];
  const int count = static_cast<int>(a.begins[window + 1] - begin);
  const BFloat16* const q = a.q + begin * a.q_stride + head * kDim;
  const BFloat16* const k = a.k + begin * a.k_stride + head * kDim;
  const BFloat16* const v = a.v + begin * a.v_stride + head * kDim;

  block.each_thread([&](int thread, Own& own) {
    const int group = thread % kWarp / 4, lane = thread % 4;
    const auto load_row = [lane](bool is_there, const BFloat16* row, Words(&to)[Shape::kFours],
                                 std::uint32_t (&rest)[2]) {
      EVALCAR_UNROLL
      for (int i = 0; i < Shape::kFours; ++i)
        to[i] = load_words_if(is_there, row + (i * 4 + lane) * 8);
      if constexpr (Shape::kHasRest) {
        rest[0] = is_there ? load_word(row + Shape::kRest + lane * 4) : 0;
        rest[1] = is_there ? load_word(row + Shape::kRest + lane * 4 + 2) : 0;
      }
    };
    EVALCAR_UNROLL
    for (int side = 0; side < 2; ++side) {
      const int row = thread / kWarp * 16 + side * 8 + group;
      load_row(row < count, q + row * a.q_stride, own.q[side], own.q_rest[side]);
    }
    EVALCAR_UNROLL
    for (int tile = 0; tile < Shape::kTiles; ++tile) {
      const int key = tile * 8 + group;
      load_row(key < count, k + key * a.k_stride, own.keys[tile], own.keys_rest[tile]);
      EVALCAR_UNROLL
      for (int i = 0; i < 4; ++i) own.scores[tile][i] = 0;
    }
  });
  EVALCAR_UNROLL
  for (int tile = 0; tile < Shape::kTiles; ++tile) {
    if (tile * 8 >= count) continue;
    const auto sums_of = [=](Own& own) -> float (&)[4] { return own.scores[tile]; };
    EVALCAR_UNROLL
    for (int i = 0; i < Shape::kFours; ++i) {
      EVALCAR_UNROLL
      for (int word = 0; word < 4; word += 2) {
        block.multiply_tiles(
            [=](const Own& own) -> TileShare {
              return {{own.q[0][i].at[word], own.q[1][i].at[word], own.q[0][i].at[word + 1],
                       own.q[1][i].at[word + 1]},
                      {own.keys[tile][i].at[word], own.keys[tile][i].at[word + 1]}};
            },
            sums_of);
      }
    }
    if constexpr (Shape::kHasRest) {
      block.multiply_tiles(
          [=](const Own& own) -> TileShare {
            return {{own.q_rest[0][0], own.q_rest[1][0], own.q_rest[0][1], own.q_rest[1][1]},
                    {own.keys_rest[tile][0], own.keys_rest[tile][1]}};
          },
          sums_of);
    }
  }

  block.each_thread([&](int thread, Own& own) {
    const int group = thread % kWarp / 4, lane = thread % 4;
    EVALCAR_UNROLL
    for (int step = 0; step < Shape::kSteps; ++step) {
      EVALCAR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int key = step * 16 + i / 2 * 8 + lane * 2 + i % 2;
        const BFloat16* const row = v + key * a.v_stride;
        EVALCAR_UNROLL
        for (int e = 0; e < Shape::kEights; ++e)
          own.values[step][i][e] = load_words_if(key < count, row + (e * 8 + group) * 8);
        if constexpr (Shape::kHasRest)
          own.values_rest[step][i] = key < count ? load_word(row + Shape::kRest + group * 2) : 0;
      }
    }
    EVALCAR_UNROLL
    for (int side = 0; side < 2; ++side) {
      own.largest[side] = -INFINITY;
      EVALCAR_UNROLL
      for (int i = 0; i < 2 * Shape::kTiles; ++i) {
        float& score = own.scores[i / 2][side * 2 + i % 2];
        score = i / 2 * 8 + lane * 2 + i % 2 < count ? score * a.scale : -INFINITY;
        own.largest[side] = larger(own.largest[side], score);
      }
    }
  });
  EVALCAR_UNROLL
  for (int side = 0; side < 2; ++side)
    block.template max_lanes<4>([side](Own& own) -> float& { return own.largest[side]; });
  block.each_thread([&](int, Own& own) {
    EVALCAR_UNROLL
    for (int side = 0; side < 2; ++side) {
      own.sums[side] = 0;
      EVALCAR_UNROLL
      for (int i = 0; i < 2 * Shape::kTiles; ++i) {
        float& score = own.scores[i / 2][side * 2 + i % 2];
        score = power_of_two(score - base_of(own.largest[side]));
        own.sums[side] += score;
      }
      EVALCAR_UNROLL
      for (int tile = 0; tile < Shape::kTiles; ++tile)
        own.powers[tile / 2][tile % 2 * 2 + side] =
            narrow_pair(own.scores[tile][side * 2], own.scores[tile][side * 2 + 1]);
    }
    EVALCAR_UNROLL
    for (int tile = 0; tile < Shape::kMixed; ++tile) {
      EVALCAR_UNROLL
      for (int i = 0; i < 4; ++i) own.mixed[tile][i] = 0;
    }
  });
  EVALCAR_UNROLL
  for (int side = 0; side < 2; ++side)
    block.template sum_lanes<4>([side](Own& own) -> float& { return own.sums[side]; });

  // Column n of tile 8 e + j is number 64 e + 8 n + j; of the last two, kRest + 2 n and one more.
  EVALCAR_UNROLL
  for (int step = 0; step < Shape::kSteps; ++step) {
    if (step * 16 >= count) continue;
    EVALCAR_UNROLL
    for (int tile = 0; tile < Shape::kMixed; ++tile) {
      block.multiply_tiles(
          [=](const Own& own) -> TileShare {
            const auto word_of = [&](int i) {
              return tile < Shape::kEights * 8 ? own.values[step][i][tile / 8].at[tile % 8 / 2]
                                               : own.values_rest[step][i];
            };
            const bool upper = tile % 2 != 0;
            const std::uint32_t (&powers)[4] = own.powers[step];
            return {{powers[0], powers[1], powers[2], powers[3]},
                    {halves_of(word_of(0), word_of(1), upper),
                     halves_of(word_of(2), word_of(3), upper)}};
          },
          [=](Own& own) -> float (&)[4] { return own.mixed[tile]; });
    }
  }

  block.each_thread([&](int thread, Own& own) {
    const int group = thread % kWarp / 4, lane = thread % 4;
    EVALCAR_UNROLL
    for (int side = 0; side < 2; ++side) {
      const int row = thread / kWarp * 16 + side * 8 + group;
      if (row >= count) continue;
      const float share = 1 / own.sums[side];
      BFloat16* const out = a.out + ((begin + row) * a.heads + head) * kDim;
      EVALCAR_UNROLL
      for (int e = 0; e < Shape::kEights; ++e) {
        EVALCAR_UNROLL
        for (int column = 0; column < 2; ++column) {
          float numbers[8];
          EVALCAR_UNROLL
          for (int j = 0; j < 8; ++j) numbers[j] = own.mixed[e * 8 + j][side * 2 + column] * share;
          store_vector(numbers, out + e * 64 + (lane * 2 + column) * 8);
        }
      }
      if constexpr (Shape::kHasRest) {
        EVALCAR_UNROLL
        for (int column = 0; column < 2; ++column) {
          const float first = own.mixed[Shape::kMixed - 2][side * 2 + column] * share;
          const float second = own.mixed[Shape::kMixed - 1][side * 2 + column] * share;
          store_word(narrow_pair(first, second), out + Shape::kRest + (lane * 2 + column) * 2);
        }
      }
    }
  });
}

}  // namespace evalcar::kernels
