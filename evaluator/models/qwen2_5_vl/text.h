// The language model of Qwen2.5-VL: Qwen2.5 (GQA, SwiGLU, biases on q, k and v) with three-axis
// rotary positions (mRoPE).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "evaluator/models/attention.h"
#include "evaluator/models/model.h"
#include "evaluator/models/qwen2_5_vl/config.h"
#include "evaluator/models/rotary.h"
#include "evaluator/weights/arena.h"

namespace evalcar::models::qwen2_5_vl {

class TextModel {
 public:
  TextModel(const TextConfig& config, bool tied_head, const weights::Arena& arena);

  at::Tensor embed(const at::Tensor& ids) const;
  at::Tensor forward(const TextBatch& batch, const CachedAttention& attention,
                     const OnLayer& on_layer) const;
  at::Tensor logits(const at::Tensor& hidden) const;

 private:
  struct Layer {
    at::Tensor input_norm, qkv_weight, qkv_bias, o_weight;
    at::Tensor post_norm, gate_up_weight, down_weight;
  };
  at::Tensor attend(const Layer& layer, std::int64_t index, const at::Tensor& x,
                    const RotaryAngles& angles, const CachedAttention& attention) const;
  at::Tensor mlp(const Layer& layer, const at::Tensor& x) const;
  RotaryAngles angles(const at::Tensor& positions) const;

  TextConfig config_;
  at::Tensor embed_tokens_;  // (vocab, hidden)
  at::Tensor head_;          // (vocab, hidden); embed_tokens_ where tied
  at::Tensor norm_;          // (hidden)
  at::Tensor frequencies_;   // (head_dim/2) float32
  at::Tensor axis_;          // (head_dim/2) int64: which position turns each frequency
  std::vector<Layer> layers_;
};

}  // namespace evalcar::models::qwen2_5_vl
