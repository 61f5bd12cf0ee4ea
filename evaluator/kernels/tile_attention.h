// Attention in float32 on the CPU's tile unit (tile_unit.h), block by block with a running maximum
// and sum, so that no matrix of scores is ever in memory. No libtorch.
#pragma once

#include <cstdint>
#include <memory>

#include "evaluator/kernels/seen_keys.h"

namespace evalcar::kernels {

/// The queries of `group` heads over the keys of the one head that they share. Query i is head
/// i % group of row i / group. Strides count floats; a vector of `dim` numbers is contiguous.
struct TileAttention {
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

/// Memory for one thread's work on heads of one dimension. Only where has_tile_unit().
class TileAttender {
 public:
  explicit TileAttender(std::int64_t dim);
  ~TileAttender();
  TileAttender(const TileAttender&) = delete;
  TileAttender& operator=(const TileAttender&) = delete;

  /// As many queries should go at once: the keys are packed for each attend() anew.
  static std::int64_t queries_at_once(std::int64_t dim);
  /// softmax(q kᵀ / sqrt(dim)) v of queries [first, first + count), count at most
  /// queries_at_once(). The exponentials are right to 2 units of float32's last place.
  void attend(const TileAttention& a, std::int64_t first, std::int64_t count);

 private:
  struct Memory;
  struct Turn;
  void advance(const TileAttention& a, Turn& scored, const Turn& weighed, const Turn& mixed);
  void add_product(const Turn& mixed, std::int64_t d);
  void hide_unseen(const TileAttention& a, const Turn& turn);
  void rank(const TileAttention& a, Turn& turn);
  std::unique_ptr<Memory> memory_;
};

}  // namespace evalcar::kernels
