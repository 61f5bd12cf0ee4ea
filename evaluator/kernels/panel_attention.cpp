#include "evaluator/kernels/panel_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "evaluator/kernels/aligned_memory.h"
#include "evaluator/kernels/lanes.h"
#include "evaluator/kernels/panel_unit.h"

namespace evalcar::kernels {
namespace {

// That go together: the scores of a block of queries take 16 KiB.
constexpr std::int64_t kKeys = 128;
// Numbers of the queries that go over the same packed keys, at most: with their sums they stay in
// the second cache.
constexpr std::int64_t kQueryNumbers = 32768;
constexpr float kHidden = -std::numeric_limits<float>::infinity();

std::int64_t padded(std::int64_t dim) { return panels_of(dim) * kPanelOutputs; }

}  // namespace

std::int64_t PanelAttender::queries_at_once(std::int64_t dim) {
  return std::max<std::int64_t>(1, kQueryNumbers / padded(dim) / kQueryBlock) * kQueryBlock;
}

struct PanelAttender::Memory {
  explicit Memory(std::int64_t dim)
      : queries(aligned_memory<float>(queries_at_once(dim) * dim)),
        sums(aligned_memory<float>(queries_at_once(dim) * padded(dim))),
        largest(aligned_memory<float>(queries_at_once(dim))),
        totals(aligned_memory<float>(queries_at_once(dim) * kLanes)),
        keys(aligned_memory<float>(kKeys * dim)),
        values(aligned_memory<float>(kKeys * padded(dim))),
        scores(aligned_memory<float>(kQueryBlock * kKeys)) {}

  AlignedMemory<float> queries;  // (queries, dim), scaled
  AlignedMemory<float> sums;     // (queries, padded dim): weights times values so far
  AlignedMemory<float> largest;  // (queries): score so far, times log2(e)
  AlignedMemory<float> totals;   // (queries, 16): of the weights so far, in 16 parts
  AlignedMemory<float> keys;     // (panels of keys, dim, 16)
  AlignedMemory<float> values;   // (panels of dimensions, kKeys, 16)
  AlignedMemory<float> scores;   // (kQueryBlock, kKeys): scores, then weights
};

PanelAttender::PanelAttender(std::int64_t dim, const PanelKernels& kernels)
    : kernels_(kernels), memory_(std::make_unique<Memory>(dim)) {}
PanelAttender::~PanelAttender() = default;

#if defined(__x86_64__)

namespace {

/// Where the panel of a key starts.
std::int64_t panel_start(std::int64_t key) { return key / kPanelOutputs * kPanelOutputs; }

/// -inf where a query does not see the key. scores: of keys [key, key + width).
void hide(const SeenKeys& seen, std::int64_t key, std::int64_t width, float* scores) {
  const auto place = [&](std::int64_t of) { return std::clamp<std::int64_t>(of - key, 0, width); };
  const std::int64_t shared_end = std::max(place(seen.shared_begin), place(seen.shared_end));
  const std::int64_t end = std::max(place(seen.begin), place(seen.end));
  std::fill(scores, scores + std::min(place(seen.shared_begin), place(seen.begin)), kHidden);
  std::fill(scores + shared_end, scores + std::max(shared_end, place(seen.begin)), kHidden);
  std::fill(scores + end, scores + width, kHidden);
}

// The scale of the scores and the change from e to 2 as base go into the queries.
EVALCAR_PANELS void scale_queries(const HeadAttention& a, std::int64_t first, std::int64_t count,
                                  float* out) {
  const auto scale =
      static_cast<float>(std::numbers::log2e / std::sqrt(static_cast<double>(a.dim)));
  const std::int64_t whole = a.dim / 8 * 8;
  for (std::int64_t query = first; query < first + count; ++query) {
    const float* const q = a.q + query / a.group * a.q_row + query % a.group * a.q_head;
    for (std::int64_t d = 0; d < whole; d += 8)
      _mm256_storeu_ps(out + d, _mm256_mul_ps(_mm256_loadu_ps(q + d), _mm256_set1_ps(scale)));
    for (std::int64_t d = whole; d < a.dim; ++d) out[d] = q[d] * scale;
    out += a.dim;
  }
}

EVALCAR_PANELS void write_query(const HeadAttention& a, std::int64_t query, const float* sums,
                                const float* total) {
  Lanes parts;
  load(total, parts);
  const float whole = sum_of(parts);
  float* const out = a.out + query / a.group * a.out_row + query % a.group * a.out_head;
  const std::int64_t vectors = a.dim / 8 * 8;
  for (std::int64_t d = 0; d < vectors; d += 8)
    _mm256_storeu_ps(out + d, _mm256_div_ps(_mm256_load_ps(sums + d), _mm256_set1_ps(whole)));
  for (std::int64_t d = vectors; d < a.dim; ++d) out[d] = sums[d] / whole;
}

}  // namespace

/// Keys [key, key + count); those that are missing to whole panels count as zeros.
void PanelAttender::pack_keys(const HeadAttention& a, std::int64_t key, std::int64_t count) {
  Memory& m = *memory_;
  for (std::int64_t i = 0; i < count; i += kPanelOutputs) {
    pack_panel(a.k + (key + i) * a.k_row, a.k_row, std::min(kPanelOutputs, count - i), a.dim,
               m.keys.get() + i * a.dim);
  }
  for (std::int64_t d = 0; d < a.dim; d += kPanelOutputs) {
    float* const panel = m.values.get() + d * kKeys;
    const std::int64_t there = std::min(kPanelOutputs, a.dim - d);
    for (std::int64_t i = 0; i < padded(count); ++i) {
      float* const out = panel + i * kPanelOutputs;
      std::fill(out, out + kPanelOutputs, 0.0F);
      if (i < count) std::copy_n(a.v + (key + i) * a.v_row + d, there, out);
    }
  }
}

/// Adds to a block's sums what it sees of keys [packed, end), which are packed, whole panels.
void PanelAttender::advance(const HeadAttention& a, std::int64_t first, const QueryBlock& block,
                            std::int64_t packed, std::int64_t end) {
  Memory& m = *memory_;
  const std::int64_t key = std::max(packed, panel_start(block.first_key));
  const std::int64_t width = padded(std::min(end, block.last_key) - key);
  const std::int64_t wide = padded(a.dim);
  float* const scores = m.scores.get();
  float* const sums = m.sums.get() + block.at * wide;
  const auto multiply = [&](const PanelProduct& product) {
    Ahead ahead = nothing_ahead(product);
    kernels_.multiply(product, ahead);
  };
  for (std::int64_t i = 0; i < width; i += kernels_.panels * kPanelOutputs) {
    multiply({.x = m.queries.get() + block.at * a.dim,
              .x_stride = a.dim,
              .rows = block.count,
              .panel = m.keys.get() + (key - packed + i) * a.dim,
              .panels = std::min(kernels_.panels, (width - i) / kPanelOutputs),
              .panel_stride = kPanelOutputs * a.dim,
              .width = a.dim,
              .sums = scores + i,
              .stride = kKeys});
  }
  const SeenKeys all{.begin = 0, .end = a.keys};
  for (std::int64_t i = 0; i < block.count; ++i) {
    const SeenKeys& seen = a.seen == nullptr ? all : a.seen[(first + block.at + i) / a.group];
    if (!seen.all_of(key, key + width)) hide(seen, key, width, scores + i * kKeys);
    kernels_.weigh(scores + i * kKeys, width, m.largest[static_cast<std::size_t>(block.at + i)],
                   m.totals.get() + (block.at + i) * kLanes, sums + i * wide, wide);
  }
  for (std::int64_t d = 0; d < wide; d += kernels_.panels * kPanelOutputs) {
    multiply({.x = scores,
              .x_stride = kKeys,
              .rows = block.count,
              .panel = m.values.get() + d * kKeys + (key - packed) * kPanelOutputs,
              .panels = std::min(kernels_.panels, (wide - d) / kPanelOutputs),
              .panel_stride = kPanelOutputs * kKeys,
              .width = width,
              .sums = sums + d,
              .stride = wide,
              .adds = true});
  }
}

void PanelAttender::attend(const HeadAttention& a, std::int64_t first, std::int64_t count) {
  Memory& m = *memory_;
  const std::int64_t wide = padded(a.dim);
  std::fill_n(m.sums.get(), count * wide, 0.0F);
  std::fill_n(m.largest.get(), count, kHidden);
  std::fill_n(m.totals.get(), count * kLanes, 0.0F);
  scale_queries(a, first, count, m.queries.get());
  const std::vector<QueryBlock> blocks = query_blocks(a, first, count);
  std::int64_t first_key = a.keys, last_key = 0;
  for (const QueryBlock& block : blocks) {
    first_key = std::min(first_key, block.first_key);
    last_key = std::max(last_key, block.last_key);
  }
  // Up to multiples of kKeys, so that no row's bits depend on which others are in the call: whole
  // panels that it does not see change none.
  for (std::int64_t key = panel_start(first_key), end = 0; key < last_key; key = end) {
    end = std::min((key / kKeys + 1) * kKeys, last_key);
    pack_keys(a, key, end - key);
    for (const QueryBlock& block : blocks) {
      if (block.last_key > key && block.first_key < end) advance(a, first, block, key, end);
    }
  }
  for (std::int64_t i = 0; i < count; ++i)
    write_query(a, first + i, m.sums.get() + i * wide, m.totals.get() + i * kLanes);
}

#else

void PanelAttender::attend(const HeadAttention&, std::int64_t, std::int64_t) {}

#endif

}  // namespace evalcar::kernels
