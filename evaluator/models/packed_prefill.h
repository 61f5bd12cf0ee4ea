// All prompts of a batch in one call of libtorch's flash attention, on a GPU in bfloat16.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>

#include "evaluator/models/kv_cache.h"

namespace evalcar::models {

/// A batch as the call takes it, on the device: (segments + 1) and (segments) int32.
struct PackedPrefill {
  at::Tensor row_begins;       ///< of each segment, and all rows
  at::Tensor slot_begins;      ///< of each segment's slot among all positions of a layer's cache
  at::Tensor lengths;          ///< positions that each segment's sequence has after this batch
  std::int64_t most_rows = 0;  ///< of a segment
  std::int64_t longest = 0;    ///< of `lengths`
};

/// Nothing where the call does not take such a cache, or where every segment branches. The
/// segments' rows follow one another. May throw c10::Error.
std::optional<PackedPrefill> pack_prefill(std::span<const Segment> segments, const KvCache& cache);

/// Reads keys and values where they are in a layer's cache, both (slots, capacity, kv_heads, dim),
/// q: (rows, heads, dim). Row i of the last n of a sequence sees all but the n - 1 - i behind it,
/// the last `window` of them where that is not 0; so the rows of a segment that branches come out
/// wrong, and are the caller's to compute. Returns (rows, heads · dim). May throw c10::Error.
at::Tensor attend_packed(const PackedPrefill& packed, const at::Tensor& q, const at::Tensor& keys,
                         const at::Tensor& values, std::int64_t window);

}  // namespace evalcar::models
