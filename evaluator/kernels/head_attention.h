// Attention in float32 on the CPU over the keys of one head: what is asked of a kernel. No
// libtorch.
#pragma once

#include <cstdint>
#include <vector>

#include "evaluator/kernels/seen_keys.h"

namespace evalcar::kernels {

/// The queries of `group` heads over the keys of the one head that they share. Query i is head
/// i % group of row i / group. Strides count floats; a vector of `dim` numbers is contiguous.
struct HeadAttention {
  const float* q = nullptr;
  std::int64_t q_row = 0;
  std::int64_t q_head = 0;
  std::int64_t rows = 0;
  std::int64_t group = 1;
  const float* k = nullptr;
  std::int64_t k_row = 0;
  const float* v = nullptr;
  std::int64_t v_row = 0;
  std::int64_t keys = 0;
  std::int64_t dim = 0;
  const SeenKeys* seen = nullptr;  ///< of each row, at least one key; null: each sees all
  float* out = nullptr;
  std::int64_t out_row = 0;
  std::int64_t out_head = 0;

  std::int64_t queries() const { return rows * group; }
};

/// Queries that go together.
constexpr std::int64_t kQueryBlock = 32;

/// A block of the queries of a call for [first, first + count).
struct QueryBlock {
  std::int64_t at = 0;                       ///< from `first` on
  std::int64_t count = 0;                    ///< of them, kQueryBlock at most
  std::int64_t first_key = 0, last_key = 0;  ///< what they see lies in [first_key, last_key)
};
std::vector<QueryBlock> query_blocks(const HeadAttention& a, std::int64_t first,
                                     std::int64_t count);

/// Memory for one thread's work on heads of one dimension. Block by block of keys with a running
/// maximum and sum, so that no matrix of scores is ever in memory.
class HeadAttender {
 public:
  virtual ~HeadAttender() = default;
  /// softmax(q kᵀ / sqrt(dim)) v of queries [first, first + count), count at most as many as the
  /// kernel's queries_at_once(), a multiple of kQueryBlock. The exponentials are right to 2 units
  /// of float32's last place. Of finite keys and values a query's bits depend on those alone that
  /// it sees; a value that is no number may reach the others of its block, too.
  virtual void attend(const HeadAttention& a, std::int64_t first, std::int64_t count) = 0;

 protected:
  HeadAttender() = default;
  HeadAttender(const HeadAttender&) = delete;
  HeadAttender& operator=(const HeadAttender&) = delete;
};

}  // namespace evalcar::kernels
