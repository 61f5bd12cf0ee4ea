// Keys and values that a language model has computed, and what a batch adds to them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace evalcar::models {

/// Keys and values of all layers. A slot holds one sequence; its first `length` positions are
/// filled. keys, values: (layers, slots, capacity, kv_heads, head_dim)
struct KvCache {
  at::Tensor keys;
  at::Tensor values;

  std::int64_t slots() const { return keys.size(1); }
  std::int64_t capacity() const { return keys.size(2); }
};

/// New tokens of one sequence in a packed batch: rows [row, row + length) are positions
/// [start, start + length) of `slot`.
struct Segment {
  std::int64_t slot = 0;
  std::int64_t start = 0;
  std::int64_t length = 0;
  std::int64_t row = 0;
  /// Where the sequence branches: behind its first `shared` positions the slot holds branches one
  /// after the other, each of which goes on from there. own[i] is the position at which the branch
  /// of the segment's row i begins; the row sees the shared positions and its own branch up to
  /// itself. Empty: one line, each row sees all before it.
  std::int64_t shared = 0;
  std::vector<std::int64_t> own = {};
};

}  // namespace evalcar::models
