// Attention in float32 on the CPU's tile unit (tile_unit.h). No libtorch.
#pragma once

#include <cstdint>
#include <memory>

#include "evaluator/kernels/head_attention.h"

namespace evalcar::kernels {

/// Only where has_tile_unit().
class TileAttender final : public HeadAttender {
 public:
  explicit TileAttender(std::int64_t dim);
  ~TileAttender() override;

  /// As many queries should go at once: the keys are packed for each attend() anew.
  static std::int64_t queries_at_once(std::int64_t dim);
  void attend(const HeadAttention& a, std::int64_t first, std::int64_t count) override;

 private:
  struct Memory;
  struct Turn;
  void advance(const HeadAttention& a, Turn& scored, const Turn& weighed, const Turn& mixed);
  void add_product(const Turn& mixed, std::int64_t d);
  void hide_unseen(const HeadAttention& a, const Turn& turn);
  void rank(const HeadAttention& a, Turn& turn);
  std::unique_ptr<Memory> memory_;
};

}  // namespace evalcar::kernels
