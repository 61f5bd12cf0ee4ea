// A split of decode_attention_block.h on the tensor cores, for bfloat16. C++17, for nvcc.
//
// A warp has a share of the keys, in tiles of 16. Scores are K · Qᵀ, 16 keys by the 8 query heads
// of a block; what comes out is Vᵀ · P, 16 numbers of a value by those heads. The order of the
// numbers that a product adds up is free, and so is which rows of a tile are which numbers: both
// are chosen so that each lane loads whole vectors from the cache straight into the registers that
// the product reads. A power is the sum of two bfloat16, its rounding and what that leaves over, so
// that it counts with 16 bits. The warps' results are added up at the end.
#pragma once

#include <cstdint>

#include "evaluator/kernels/decode_attention_block.h"

namespace evalcar::kernels {

/// How a block's warps share the work.
template <int kDim>
struct TileShape {
  static constexpr int kVectors = kDim / kVector<BFloat16>;  // of a key
  static constexpr int kWarps = kDecodeThreads / kWarp;
  static constexpr int kKeysOfWarp = kSplitKeys / kWarps;
  static constexpr int kTiles = kKeysOfWarp / 16;
  static constexpr int kSteps = (kVectors + 3) / 4;   // vectors of a key that a lane loads
  static constexpr int kHalves = (kVectors + 7) / 8;  // vectors of a value
  // Shared memory: scores; when they have served, the warps' results in their place. A row is
  // longer than it has numbers, for the banks.
  static constexpr int kRow = kDim + 4;
  static constexpr int kBefore = kSplitKeys * kMostGroup;
  static constexpr int kAfter = kWarps * kMostGroup * kRow;
  static constexpr int kTotals = kBefore > kAfter ? kBefore : kAfter;
  static constexpr int kShared = kTotals + 2 * kMostGroup;

  /// A thread's registers.
  struct Own {
    Words q[kSteps];
    Words keys[kTiles][kSteps][2];
    float scores[kTiles][4];
    LanePowers lane;
    Words values[kTiles][kHalves][4];
    std::uint32_t powers[kTiles][2];  // rounded, of two keys each
    std::uint32_t rests[kTiles][2];
    float mixed[kHalves][4][4];
  };
};

/// One split of a row for some of its heads, at most kMostGroup. shared: (TileShape::kShared), at a
/// 16-byte boundary.
template <int kDim, typename Block>
EVALCAR_DEVICE void attend_by_tiles(const DecodeAttention<BFloat16>& a, std::int64_t row,
                                    const HeadShare& heads, std::int64_t split, Block& block,
                                    float* shared) {
  using Shape = TileShape<kDim>;
  using Own = typename Shape::Own;
  const SplitKeys present = split_keys(a, row, heads.kv_head, split);
  const int count = present.count;
  if (count == 0) return;  // this row has fewer splits than another
  const BFloat16* const q = a.q + (row * a.heads + heads.first) * kDim;
  const BFloat16* const k = a.k + present.place;
  const BFloat16* const v = a.v + present.place;
  float* const largest = shared + Shape::kTotals;
  float* const sums = largest + kMostGroup;
  const auto first_key = [](int thread, int tile) {
    return thread / kWarp * Shape::kKeysOfWarp + tile * 16;
  };

  // A row of a tile is a key. Its numbers come in the order of the lanes' vectors: words 0 and 1 of
  // them are one product's, 2 and 3 the next one's.
  block.each_thread([&](int thread, Own& own) {
    const int group = thread % kWarp / 4, lane = thread % 4;
    EVALCAR_UNROLL
    for (int step = 0; step < Shape::kSteps; ++step) {
      const int vector = step * 4 + lane;
      const bool is_there = vector < Shape::kVectors;
      const int at = vector * kVector<BFloat16>;
      own.q[step] = load_words_if(is_there && group < heads.count, q + group * kDim + at);
      EVALCAR_UNROLL
      for (int tile = 0; tile < Shape::kTiles; ++tile) {
        EVALCAR_UNROLL
        for (int side = 0; side < 2; ++side) {
          const int key = first_key(thread, tile) + side * 8 + group;
          own.keys[tile][step][side] =
              load_words_if(is_there && key < count, k + key * a.position_stride + at);
        }
      }
    }
    EVALCAR_UNROLL
    for (int tile = 0; tile < Shape::kTiles; ++tile) {
      EVALCAR_UNROLL
      for (int i = 0; i < 4; ++i) own.scores[tile][i] = 0;
    }
  });
  EVALCAR_UNROLL
  for (int step = 0; step < Shape::kSteps; ++step) {
    EVALCAR_UNROLL
    for (int word = 0; word < 4; word += 2) {
      EVALCAR_UNROLL
      for (int tile = 0; tile < Shape::kTiles; ++tile) {
        block.multiply_tiles(
            [=](const Own& own) -> TileShare {
              const Words(&keys)[2] = own.keys[tile][step];
              return {
                  {keys[0].at[word], keys[1].at[word], keys[0].at[word + 1], keys[1].at[word + 1]},
                  {own.q[step].at[word], own.q[step].at[word + 1]}};
            },
            [=](Own& own) -> float (&)[4] { return own.scores[tile]; });
      }
    }
  }

  block.each_thread([&](int thread, Own& own) {
    const int group = thread % kWarp / 4, lane = thread % 4;
    // The values are on their way while scores become powers.
    EVALCAR_UNROLL
    for (int tile = 0; tile < Shape::kTiles; ++tile) {
      EVALCAR_UNROLL
      for (int half = 0; half < Shape::kHalves; ++half) {
        const int vector = half * 8 + group;
        EVALCAR_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int key = first_key(thread, tile) + lane + i * 4;
          own.values[tile][half][i] =
              load_words_if(vector < Shape::kVectors && key < count,
                            v + key * a.position_stride + vector * kVector<BFloat16>);
        }
      }
      EVALCAR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int key = first_key(thread, tile) + i / 2 * 8 + group;
        shared[key * kMostGroup + lane * 2 + i % 2] =
            key < count ? own.scores[tile][i] * a.scale : -INFINITY;
      }
    }
  });

  scores_to_powers<kMostGroup, Own>(heads.count, block, shared, largest, sums);

  // A row of a tile is a number of the values, a column of it a key: of each lane's vectors, which
  // belong to four keys, word w is the rows `group` and `group + 8` of product w.
  block.each_thread([&](int thread, Own& own) {
    const int group = thread % kWarp / 4, lane = thread % 4;
    EVALCAR_UNROLL
    for (int tile = 0; tile < Shape::kTiles; ++tile) {
      EVALCAR_UNROLL
      for (int pair = 0; pair < 2; ++pair) {
        std::uint32_t power[2], rest[2];
        EVALCAR_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int key = first_key(thread, tile) + lane + (pair * 2 + i) * 4;
          const float whole = shared[key * kMostGroup + group];
          power[i] = narrow<BFloat16>(whole).bits;
          rest[i] = narrow<BFloat16>(whole - rounded<BFloat16>(whole)).bits;
        }
        own.powers[tile][pair] = halves_of(power[0], power[1], false);
        own.rests[tile][pair] = halves_of(rest[0], rest[1], false);
      }
    }
    EVALCAR_UNROLL
    for (int half = 0; half < Shape::kHalves; ++half) {
      EVALCAR_UNROLL
      for (int i = 0; i < 16; ++i) own.mixed[half][i / 4][i % 4] = 0;
    }
  });
  EVALCAR_UNROLL
  for (int tile = 0; tile < Shape::kTiles; ++tile) {
    EVALCAR_UNROLL
    for (int half = 0; half < Shape::kHalves; ++half) {
      EVALCAR_UNROLL
      for (int word = 0; word < 4; ++word) {
        EVALCAR_UNROLL
        for (int part = 0; part < 2; ++part) {
          block.multiply_tiles(
              [=](const Own& own) -> TileShare {
                const Words(&values)[4] = own.values[tile][half];
                const auto pair_of = [&](int first, bool upper) {
                  return halves_of(values[first].at[word], values[first + 1].at[word], upper);
                };
                const std::uint32_t (&powers)[2] = part == 0 ? own.powers[tile] : own.rests[tile];
                return {{pair_of(0, false), pair_of(0, true), pair_of(2, false), pair_of(2, true)},
                        {powers[0], powers[1]}};
              },
              [=](Own& own) -> float (&)[4] { return own.mixed[half][word]; });
        }
      }
    }
  }

  block.each_thread([&](int thread, Own& own) {
    const int warp = thread / kWarp, group = thread % kWarp / 4, lane = thread % 4;
    EVALCAR_UNROLL
    for (int half = 0; half < Shape::kHalves; ++half) {
      const int vector = half * 8 + group;
      if (vector >= Shape::kVectors) continue;
      EVALCAR_UNROLL
      for (int side = 0; side < 2; ++side) {
        const int head = lane * 2 + side;
        float* const to = shared + (warp * kMostGroup + head) * Shape::kRow + vector * 8;
        EVALCAR_UNROLL
        for (int word = 0; word < 4; word += 2) {
          const float (&first)[4] = own.mixed[half][word];
          const float (&second)[4] = own.mixed[half][word + 1];
          const float four[4] = {first[side], first[2 + side], second[side], second[2 + side]};
          store_vector(four, to + word * 2);
        }
      }
    }
  });

  leave_split<kDim, BFloat16, Own>(a, row, heads, split, largest, sums, block, [&](int h, int d) {
    float sum = 0;
    EVALCAR_UNROLL
    for (int warp = 0; warp < Shape::kWarps; ++warp)
      sum += shared[(warp * kMostGroup + h) * Shape::kRow + d];
    return sum;
  });
}

}  // namespace evalcar::kernels
