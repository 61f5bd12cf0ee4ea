// Shapes: N rows (new tokens of all sequences of the batch), C hidden, H heads, K key heads, D
// head_dim, I intermediate, V vocabulary.
#include "evaluator/models/qwen2_5_vl/text.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>

#include <string>

#include "evaluator/kernels/rms_norm.h"

namespace evalcar::models::qwen2_5_vl {

TextModel::TextModel(const TextConfig& config, bool tied_head, const weights::Arena& arena)
    : config_(config),
      embed_tokens_(arena.tensor("model.embed_tokens.weight")),
      head_(tied_head ? embed_tokens_ : arena.tensor("lm_head.weight")),
      norm_(arena.tensor("model.norm.weight")),
      frequencies_(
          rotary_frequencies(config.rope_theta, config.head_dim(), embed_tokens_.device())) {
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i) + ".";
    const auto tensor = [&](const char* part) { return arena.tensor(name + part); };
    layers_.push_back({.input_norm = tensor("input_layernorm.weight"),
                       .qkv_weight = tensor("self_attn.qkv_proj.weight"),
                       .qkv_bias = tensor("self_attn.qkv_proj.bias"),
                       .o_weight = tensor("self_attn.o_proj.weight"),
                       .post_norm = tensor("post_attention_layernorm.weight"),
                       .gate_up_weight = tensor("mlp.gate_up_proj.weight"),
                       .down_weight = tensor("mlp.down_proj.weight")});
  }
  std::vector<std::int64_t> axis;
  for (std::size_t section = 0; section < 3; ++section)
    axis.insert(axis.end(), static_cast<std::size_t>(config.mrope_section[section]),
                static_cast<std::int64_t>(section));
  axis_ = at::tensor(at::ArrayRef<std::int64_t>(axis), at::TensorOptions().dtype(at::kLong))
              .to(embed_tokens_.device());
}

at::Tensor TextModel::embed(const at::Tensor& ids) const {
  return at::embedding(embed_tokens_, ids);
}

at::Tensor TextModel::forward(const TextBatch& batch, const CachedAttention& attention,
                              const OnLayer& on_layer) const {
  const RotaryAngles turn = angles(batch.positions);
  at::Tensor x = batch.embeddings;  // (N, C)
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    at::Tensor mixed = attend(layer, static_cast<std::int64_t>(i),
                              kernels::rms_norm(x, layer.input_norm, config_.rms_norm_eps), turn,
                              attention);  // (N, H·D)
    if (i + 1 == layers_.size()) {  // every key is in the cache now: only the wanted rows go on
      mixed = mixed.index_select(0, batch.wanted);
      x = x.index_select(0, batch.wanted);
    }
    x = x + at::linear(mixed, layer.o_weight);
    x = x + mlp(layer, kernels::rms_norm(x, layer.post_norm, config_.rms_norm_eps));
    if (on_layer && !on_layer()) break;
  }
  return x;
}

// positions: (3, N). Frequency j turns by positions[axis_[j]] · frequencies_[j].
RotaryAngles TextModel::angles(const at::Tensor& positions) const {
  const at::Tensor places = positions.index_select(0, axis_).t().to(at::kFloat);  // (N, D/2)
  return rotary_angles(places * frequencies_, embed_tokens_.scalar_type());
}

at::Tensor TextModel::attend(const Layer& layer, std::int64_t index, const at::Tensor& x,
                             const RotaryAngles& turn, const CachedAttention& attention) const {
  const std::int64_t rows = x.size(0), dim = config_.head_dim();
  const at::Tensor qkv = at::linear(x, layer.qkv_weight, layer.qkv_bias)
                             .view({rows, config_.heads + 2 * config_.kv_heads, dim});
  const at::Tensor q = rotate(qkv.narrow(1, 0, config_.heads), turn);                 // (N, H, D)
  const at::Tensor k = rotate(qkv.narrow(1, config_.heads, config_.kv_heads), turn);  // (N, K, D)
  const at::Tensor v = qkv.narrow(1, config_.heads + config_.kv_heads, config_.kv_heads);
  return attention.attend(index, q, k, v);
}

at::Tensor TextModel::mlp(const Layer& layer, const at::Tensor& x) const {
  const at::Tensor both = at::linear(x, layer.gate_up_weight);  // (N, 2·I)
  const at::Tensor gate = at::silu(both.narrow(1, 0, config_.intermediate));
  const at::Tensor up = both.narrow(1, config_.intermediate, config_.intermediate);
  return at::linear(gate * up, layer.down_weight);
}

at::Tensor TextModel::logits(const at::Tensor& hidden) const {
  return at::linear(kernels::rms_norm(hidden, norm_, config_.rms_norm_eps), head_);  // (k, V)
}

}  // namespace evalcar::models::qwen2_5_vl
