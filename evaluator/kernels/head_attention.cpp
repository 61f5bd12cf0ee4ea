#include "evaluator/kernels/head_attention.h"

#include <algorithm>

namespace evalcar::kernels {

std::vector<QueryBlock> query_blocks(const HeadAttention& a, std::int64_t first,
                                     std::int64_t count) {
  std::vector<QueryBlock> blocks;
  for (std::int64_t at = 0; at < count; at += kQueryBlock) {
    QueryBlock block{at, std::min(kQueryBlock, count - at), 0, a.keys};
    if (a.seen != nullptr) {
      block.first_key = a.keys;
      block.last_key = 0;
      const std::int64_t last_row = (first + at + block.count - 1) / a.group;
      for (std::int64_t row = (first + at) / a.group; row <= last_row; ++row) {
        block.first_key = std::min(block.first_key, a.seen[row].first());
        block.last_key = std::max(block.last_key, a.seen[row].end);
      }
    }
    blocks.push_back(block);
  }
  return blocks;
}

}  // namespace evalcar::kernels
