// A decoder over packed rows and a slot cache; its switches are decoder::Config's.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "evaluator/kernels/linear.h"
#include "evaluator/models/attention.h"
#include "evaluator/models/decoder/config.h"
#include "evaluator/models/model.h"
#include "evaluator/models/rotary.h"
#include "evaluator/weights/arena.h"

namespace evalcar::models::decoder {

class Decoder {
 public:
  /// Takes views of the tensors that add_tensors() laid out.
  Decoder(const Config& config, const weights::Arena& arena);

  at::Tensor embed(const at::Tensor& ids) const;
  at::Tensor forward(const TextBatch& batch, const CachedAttention& attention,
                     const OnLayer& on_layer) const;
  at::Tensor logits(const at::Tensor& hidden) const;
  kernels::TokenScores score(const at::Tensor& hidden, const kernels::AskedTokens& asked) const;

 private:
  /// A bias or norm that the family does not have is an undefined tensor.
  struct Layer {
    at::Tensor input_norm, q_norm, k_norm, post_norm;
    kernels::LinearWeights qkv, o, gate_up, down;
    bool windowed = false;
  };
  at::Tensor attend(const Layer& layer, std::int64_t index, const at::Tensor& x,
                    const RotaryAngles& angles, const CachedAttention& attention) const;
  at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) const;
  at::Tensor norm_of_heads(const at::Tensor& x, const at::Tensor& weight) const;
  RotaryAngles angles(const at::Tensor& positions) const;

  Config config_;
  at::Tensor embed_tokens_;      // (vocab, hidden)
  kernels::LinearWeights head_;  // (vocab, hidden); embed_tokens_ where tied
  at::Tensor norm_;              // (hidden)
  at::Tensor frequencies_;       // (head_dim/2) float32
  at::Tensor axis_;              // (head_dim/2) int64: which position turns each frequency
  std::vector<Layer> layers_;
};

}  // namespace evalcar::models::decoder
