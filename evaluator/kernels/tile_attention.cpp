#include "evaluator/kernels/tile_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "evaluator/kernels/tile_terms.h"
#include "evaluator/kernels/tile_unit.h"
#include "evaluator/kernels/tile_weighing.h"

namespace evalcar::kernels {

namespace {

constexpr std::int64_t kKeys =
    128;  // that go together: the first cache holds their scores and weights
constexpr std::int64_t kMostQueries = 2048;  // that go over the same packed keys
constexpr std::int64_t kQueryNumbers = 131072;
constexpr std::int64_t kBlockBytes = kTerms * kTermBytes;  // of 32 rows or columns, one step
static_assert(kQueryBlock == kTileBlock);
constexpr float kHidden = -std::numeric_limits<float>::infinity();

std::int64_t padded(std::int64_t dim) { return tile_steps(dim) * kTileStep; }

}  // namespace

std::int64_t TileAttender::queries_at_once(std::int64_t dim) {
  const std::int64_t queries = std::min(kMostQueries, kQueryNumbers / padded(dim));
  return std::max<std::int64_t>(1, queries / kTileBlock) * kTileBlock;
}

#if defined(__x86_64__)

// Zeros at first, which are kept from call to call: what no query, key or dimension is there for is
// multiplied, too. It is packed as zeros, or what an earlier call left there, NaN it may be, stays
// in rows or columns that nobody reads.
struct TileAttender::Memory {
  explicit Memory(std::int64_t dim)
      : steps(tile_steps(dim)),
        query_bytes(tile_blocks(queries_at_once(dim)) * steps * kBlockBytes),
        key_bytes(tile_blocks(kKeys) * steps * kBlockBytes),
        bytes(static_cast<std::size_t>(query_bytes + 2 * key_bytes +
                                       2 * tile_steps(kKeys) * kBlockBytes + 64)),
        numbers(static_cast<std::size_t>(
            queries_at_once(dim) * (padded(dim) + 17) +
            kTileBlock * (2 * kKeys + padded(dim) + 2 * kTileBlock + 16) + 16)) {
    const auto aligned = [](auto* pointer) {
      const auto place = reinterpret_cast<std::uintptr_t>(pointer);
      return pointer + (64 - place % 64) % 64 / sizeof(*pointer);
    };
    queries = aligned(bytes.data());
    keys = queries + query_bytes;
    values = keys + key_bytes;
    weights = {values + key_bytes, values + key_bytes + tile_steps(kKeys) * kBlockBytes};
    float* const first_scores = aligned(numbers.data());
    scores = {first_scores, first_scores + kTileBlock * kKeys};
    parts = first_scores + 2 * kTileBlock * kKeys;
    float* const first_product = parts + kTileBlock * 16;
    products = {first_product, first_product + kTileBlock * kTileBlock};
    scaled = first_product + 2 * kTileBlock * kTileBlock;
    sums = scaled + kTileBlock * padded(dim);
    totals = sums + queries_at_once(dim) * padded(dim);
    largest = totals + 16 * queries_at_once(dim);
  }

  std::int64_t steps, query_bytes, key_bytes;
  std::vector<char> bytes;
  std::vector<float> numbers;
  char* queries;                   // packed rows: (blocks of queries, steps)
  char* keys;                      // packed columns: (blocks of keys, steps)
  char* values;                    // packed columns: (blocks of dimensions, steps of keys)
  std::array<char*, 2> weights;    // packed rows: (steps of keys), of two turns
  std::array<float*, 2> scores;    // (32, kKeys), of two turns
  float* parts;                    // (32, 16): of the sums of a turn's weights
  std::array<float*, 2> products;  // (32, 32): of 32 dimensions and the 32 before
  float* scaled;                   // (32, padded dim)
  float* sums;                     // (queries, padded dim): weights times values so far
  float* largest;                  // (queries): score so far, times log2(e)
  float* totals;                   // (queries, 16): of the weights so far, in 16 parts
};

TileAttender::TileAttender(std::int64_t dim) : memory_(std::make_unique<Memory>(dim)) {}
TileAttender::~TileAttender() = default;

namespace {

/// 16 numbers of the value of key `key + i`; 0 from `count` on.
EVALCAR_TILES inline __m512 value_at(const HeadAttention& a, std::int64_t key, std::int64_t i,
                                     std::int64_t count, std::int64_t at, __mmask16 there) {
  return i < count ? _mm512_maskz_loadu_ps(there, a.v + (key + i) * a.v_row + at)
                   : _mm512_setzero_ps();
}

/// Values of keys as columns: the sums go over the keys, of 32 the first with the 17th, the second
/// with the 18th and so on, as the weights are packed. out: (blocks of dimensions, steps).
EVALCAR_TILES void pack_values(const HeadAttention& a, std::int64_t key, std::int64_t count,
                               std::int64_t steps, char* out) {
  for (std::int64_t at = 0; at < a.dim; at += 16) {
    const __mmask16 there = lanes_below(a.dim - at);
    char* const column =
        out + at / kTileBlock * steps * kBlockBytes + at % kTileBlock / 16 * (kTermBytes / 2);
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::int64_t first = step * kTileStep;
      for (std::int64_t i = 0; i < 16; ++i) {
        const TileTerms terms = terms_in_turn(value_at(a, key, first + i, count, at, there),
                                              value_at(a, key, first + 16 + i, count, at, there));
        store_terms(terms, column + step * kBlockBytes + i * 64);
      }
    }
  }
}

EVALCAR_TILES inline __mmask16 lanes_between(std::int64_t begin, std::int64_t end) {
  return static_cast<__mmask16>(lanes_below(end) & ~lanes_below(begin));
}

/// -inf where a row does not see the key. scores: of keys [key, key + width).
EVALCAR_TILES void hide(const SeenKeys& seen, std::int64_t key, std::int64_t width, float* scores) {
  for (std::int64_t at = 0; at < width; at += 16) {
    const std::int64_t from = key + at;
    const auto hidden =
        static_cast<__mmask16>(~(lanes_between(seen.shared_begin - from, seen.shared_end - from) |
                                 lanes_between(seen.begin - from, seen.end - from)));
    _mm512_mask_store_ps(scores + at, hidden, _mm512_set1_ps(kHidden));
  }
}

// The scale of the scores and the change from e to 2 as base go into the queries.
EVALCAR_TILES void pack_queries(const HeadAttention& a, std::int64_t first, std::int64_t count,
                                float* scaled, std::int64_t width, char* out) {
  const auto scale =
      static_cast<float>(std::numbers::log2e / std::sqrt(static_cast<double>(a.dim)));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t query = first + i;
    const float* const q = a.q + query / a.group * a.q_row + query % a.group * a.q_head;
    for (std::int64_t d = 0; d < a.dim; d += 16) {
      const __m512 values = _mm512_maskz_loadu_ps(lanes_below(a.dim - d), q + d);
      _mm512_store_ps(scaled + i * width + d, _mm512_mul_ps(values, _mm512_set1_ps(scale)));
    }
  }
  pack_rows(scaled, width, count, a.dim, out);
}

EVALCAR_TILES void write_query(const HeadAttention& a, std::int64_t query, const float* sums,
                               float total) {
  float* const out = a.out + query / a.group * a.out_row + query % a.group * a.out_head;
  for (std::int64_t d = 0; d < a.dim; d += 16) {
    const __m512 mean = _mm512_div_ps(_mm512_load_ps(sums + d), _mm512_set1_ps(total));
    _mm512_mask_storeu_ps(out + d, lanes_below(a.dim - d), mean);
  }
}

}  // namespace

/// A block of queries and keys [key, key + width), width a multiple of 32.
struct TileAttender::Turn {
  std::int64_t first = 0;  // query of the block
  std::int64_t at = 0;     // the same, from the call's first on
  std::int64_t count = 0;  // of queries; 0: there is no such turn
  std::int64_t key = 0;    // packed keys and values start at it
  std::int64_t width = 0;
  std::int64_t packed_steps = 0;         // of the values
  float* scores = nullptr;               // (32, kKeys)
  char* weights = nullptr;               // packed rows: (steps of keys)
  std::array<float, kTileBlock> base{};  // of the exponents
  std::array<float, kTileBlock> kept{};  // what sums so far are to be multiplied by
};

namespace {

/// A product of blocks, and where it goes.
struct BlockProduct {
  const char* rows;
  const char* columns;
  std::int64_t steps;
  float* out;
  std::int64_t stride;
};

}  // namespace

/// The scores of a turn, the weights of the one before it, and what those of the one before that
/// add to the sums. Each may be of no queries. The exponentials of the second take the vector units
/// about as long as the products of the others take the tile unit: they go beside them.
EVALCAR_TILES void TileAttender::advance(const HeadAttention& a, Turn& scored, const Turn& weighed,
                                         const Turn& mixed) {
  Memory& m = *memory_;
  const std::int64_t columns = scored.count == 0 ? 0 : scored.width / kTileBlock;
  const std::int64_t steps = tile_steps(mixed.count == 0 ? 0 : mixed.width);
  const std::int64_t products = columns + (steps == 0 ? 0 : m.steps);
  const auto product = [&](std::int64_t i) -> BlockProduct {
    if (i < columns) {
      return {m.queries + scored.at / kTileBlock * m.steps * kBlockBytes,
              m.keys + i * m.steps * kBlockBytes, m.steps, scored.scores + i * kTileBlock, kKeys};
    }
    const std::int64_t d = i - columns;
    return {mixed.weights, m.values + d * mixed.packed_steps * kBlockBytes, steps,
            m.products[static_cast<std::size_t>(d % 2)], kTileBlock};
  };
  const std::int64_t calls = turns_beside<kTerms>(columns * m.steps + m.steps * steps);
  std::fill_n(m.parts, kTileBlock * 16, 0.0F);
  Weighing weighing(weighed.scores, kKeys, weighed.base.data(), weighed.count,
                    weighed.count == 0 ? 0 : weighed.width, std::max<std::int64_t>(1, calls),
                    weighed.weights, m.parts);
  for (std::int64_t i = 0; i < products; ++i) {
    const BlockProduct p = product(i);
    multiply_blocks<kTerms>(p.rows, p.columns, p.steps, p.out, p.stride, weighing);
    if (i > columns) add_product(mixed, i - columns - 1);  // the one before: it is there by now
  }
  weighing.finish();
  for (std::int64_t i = 0; i < weighed.count; ++i) {
    float* const total = m.totals + (weighed.at + i) * 16;
    const __m512 kept = _mm512_set1_ps(weighed.kept[static_cast<std::size_t>(i)]);
    _mm512_store_ps(total,
                    _mm512_fmadd_ps(_mm512_load_ps(total), kept, _mm512_load_ps(m.parts + i * 16)));
  }
  if (scored.count > 0) rank(a, scored);
  if (products > columns) add_product(mixed, products - columns - 1);
}

/// 32 dimensions of what a turn's weights add to the sums, which are brought to its base.
EVALCAR_TILES void TileAttender::add_product(const Turn& mixed, std::int64_t d) {
  Memory& m = *memory_;
  const float* const product = m.products[static_cast<std::size_t>(d % 2)];
  for (std::int64_t i = 0; i < mixed.count; ++i) {
    float* const sums = m.sums + ((mixed.at + i) * m.steps + d) * kTileBlock;
    const __m512 kept = _mm512_set1_ps(mixed.kept[static_cast<std::size_t>(i)]);
    for (std::int64_t half = 0; half < kTileBlock; half += 16) {
      _mm512_store_ps(sums + half,
                      _mm512_fmadd_ps(_mm512_load_ps(sums + half), kept,
                                      _mm512_load_ps(product + i * kTileBlock + half)));
    }
  }
}

/// -inf where a query does not see the key: of each row's `group` queries the same.
EVALCAR_TILES void TileAttender::hide_unseen(const HeadAttention& a, const Turn& turn) {
  const SeenKeys all{.begin = 0, .end = a.keys};
  std::int64_t row = turn.first / a.group;
  for (std::int64_t i = 0; i < turn.count; ++row) {
    const std::int64_t end = std::min(turn.count, (row + 1) * a.group - turn.first);
    const SeenKeys& seen = a.seen == nullptr ? all : a.seen[row];
    if (seen.all_of(turn.key, turn.key + turn.width)) {
      i = end;
      if (a.seen == nullptr) return;
    }
    for (; i < end; ++i) hide(seen, turn.key, turn.width, turn.scores + i * kKeys);
  }
}

/// Tells the turn the largest scores so far, and what sums have to be multiplied by when those
/// become the base.
EVALCAR_TILES void TileAttender::rank(const HeadAttention& a, Turn& turn) {
  Memory& m = *memory_;
  hide_unseen(a, turn);
  for (std::int64_t from = 0; from < turn.count; from += 16) {
    __m512 largest[16];
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < 16; ++i) {
      const float* const scores = turn.scores + (from + i) * kKeys;
      largest[i] = _mm512_max_ps(_mm512_load_ps(scores), _mm512_load_ps(scores + 16));
      for (std::int64_t at = kTileStep; at < turn.width; at += kTileStep) {
        largest[i] = _mm512_max_ps(largest[i], _mm512_max_ps(_mm512_load_ps(scores + at),
                                                             _mm512_load_ps(scores + at + 16)));
      }
    }
    float* const so_far = m.largest + turn.at + from;
    const __m512 before = _mm512_load_ps(so_far);
    const __m512 now = _mm512_max_ps(before, largest_of_each(largest));
    const __mmask16 seen = _mm512_cmp_ps_mask(now, _mm512_set1_ps(kHidden), _CMP_NEQ_UQ);
    const __m512 base = _mm512_maskz_mov_ps(seen, now);
    _mm512_store_ps(so_far, now);
    _mm512_storeu_ps(turn.base.data() + from, base);
    _mm512_storeu_ps(turn.kept.data() + from, power_of_two(_mm512_sub_ps(before, base)));
  }
}

EVALCAR_TILES void TileAttender::attend(const HeadAttention& a, std::int64_t first,
                                        std::int64_t count) {
  const TileSession session;
  Memory& m = *memory_;
  const std::int64_t wide = m.steps * kTileStep;
  const std::vector<QueryBlock> blocks = query_blocks(a, first, count);
  std::fill_n(m.sums, count * wide, 0.0f);
  std::fill_n(m.largest, tile_blocks(count) * kTileBlock, kHidden);
  std::fill_n(m.totals, count * 16, 0.0f);
  std::int64_t first_key = a.keys, last_key = 0;
  for (const QueryBlock& block : blocks) {
    first_key = std::min(first_key, block.first_key);
    last_key = std::max(last_key, block.last_key);
    pack_queries(a, first + block.at, block.count, m.scaled, wide,
                 m.queries + block.at / kTileBlock * m.steps * kBlockBytes);
  }
  // From a multiple of kKeys on, so that no row's bits depend on which others are in the call.
  for (std::int64_t key = first_key / kKeys * kKeys; key < last_key; key += kKeys) {
    const std::int64_t there = std::min(kKeys, last_key - key);
    const std::int64_t steps = tile_steps(there);
    for (std::int64_t k = 0; k < there; k += kTileBlock)
      pack_columns(a.k + (key + k) * a.k_row, a.k_row, std::min(kTileBlock, there - k), a.dim,
                   m.keys + k / kTileBlock * m.steps * kBlockBytes);
    pack_values(a, key, there, steps, m.values);
    Turn turns[3];  // the one that is scored, the one before it, the one before that
    std::size_t next = 0;
    for (const QueryBlock& block : blocks) {
      if (block.last_key <= key || block.first_key >= key + there) continue;
      turns[0] = {.first = first + block.at, .at = block.at, .count = block.count, .key = key};
      turns[0].width = tile_steps(std::min(there, block.last_key - key)) * kTileStep;
      turns[0].packed_steps = steps;
      turns[0].scores = m.scores[next];
      turns[0].weights = m.weights[next];
      next = 1 - next;
      advance(a, turns[0], turns[1], turns[2]);
      turns[2] = turns[1];
      turns[1] = turns[0];
    }
    turns[0] = {};
    advance(a, turns[0], turns[1], turns[2]);
    advance(a, turns[0], turns[0], turns[1]);
  }
  for (std::int64_t i = 0; i < count; ++i)
    write_query(a, first + i, m.sums + i * wide,
                _mm512_reduce_add_ps(_mm512_load_ps(m.totals + i * 16)));
}

#else

struct TileAttender::Memory {};
TileAttender::TileAttender(std::int64_t) {}
TileAttender::~TileAttender() = default;
void TileAttender::attend(const HeadAttention&, std::int64_t, std::int64_t) {}

#endif

}  // namespace evalcar::kernels
