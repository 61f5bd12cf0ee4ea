// Attention in float32 by panels (panel_unit.h). No libtorch.
#pragma once

#include <cstdint>
#include <memory>

#include "evaluator/kernels/head_attention.h"
#include "evaluator/kernels/panel_unit.h"

namespace evalcar::kernels {

/// Only where has_panel_unit().
class PanelAttender final : public HeadAttender {
 public:
  explicit PanelAttender(std::int64_t dim, const PanelKernels& kernels = panel_kernels().front());
  ~PanelAttender() override;

  /// As many queries should go at once: the keys are packed for each attend() anew.
  static std::int64_t queries_at_once(std::int64_t dim);
  void attend(const HeadAttention& a, std::int64_t first, std::int64_t count) override;

 private:
  struct Memory;
  void pack_keys(const HeadAttention& a, std::int64_t key, std::int64_t count);
  void advance(const HeadAttention& a, std::int64_t first, const QueryBlock& block,
               std::int64_t packed, std::int64_t end);
  PanelKernels kernels_;
  std::unique_ptr<Memory> memory_;
};

}  // namespace evalcar::kernels
