// Shapes: N rows (new tokens of all sequences of the batch), C hidden, H heads, K key heads, D
// head_dim, V vocabulary.
#include "evaluator/models/decoder/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <string>

#include "evaluator/kernels/rms_norm.h"

namespace evalcar::models::decoder {
namespace {

kernels::LinearWeights linear_of(const weights::Arena& arena, const std::string& name, bool bias) {
  return {arena.tensor(name + ".weight"), bias ? arena.tensor(name + ".bias") : at::Tensor(),
          arena.half(name + ".weight")};
}

}  // namespace

Decoder::Decoder(const Config& config, const weights::Arena& arena)
    : config_(config),
      embed_tokens_(arena.tensor("model.embed_tokens.weight")),
      head_(linear_of(arena, config.tied_head ? "model.embed_tokens" : "lm_head", false)),
      norm_(arena.tensor("model.norm.weight")),
      frequencies_(rotary_frequencies(config.rope, config.head_dim, embed_tokens_.device())),
      axis_(at::tensor(at::ArrayRef<std::int64_t>(config.position_axis),
                       at::TensorOptions().dtype(at::kLong))
                .to(embed_tokens_.device())) {
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i) + ".";
    const auto tensor = [&](const char* part, bool there = true) {
      return there ? arena.tensor(name + part) : at::Tensor();
    };
    layers_.push_back({.input_norm = tensor("input_layernorm.weight"),
                       .q_norm = tensor("self_attn.q_norm.weight", config.qk_norm),
                       .k_norm = tensor("self_attn.k_norm.weight", config.qk_norm),
                       .post_norm = tensor("post_attention_layernorm.weight"),
                       .qkv = linear_of(arena, name + "self_attn.qkv_proj", config.qkv_bias),
                       .o = linear_of(arena, name + "self_attn.o_proj", config.output_bias),
                       .gate_up = linear_of(arena, name + "mlp.gate_up_proj", config.mlp_bias),
                       .down = linear_of(arena, name + "mlp.down_proj", config.mlp_bias),
                       .windowed = config.windowed[static_cast<std::size_t>(i)]});
  }
}

at::Tensor Decoder::embed(const at::Tensor& ids) const { return at::embedding(embed_tokens_, ids); }

at::Tensor Decoder::forward(const TextBatch& batch, const CachedAttention& attention,
                            const OnLayer& on_layer) const {
  const RotaryAngles turn = angles(batch.positions);
  at::Tensor x = batch.embeddings.clone();  // (N, C): added to in place
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    at::Tensor mixed = attend(layer, static_cast<std::int64_t>(i), norm(x, layer.input_norm), turn,
                              attention);  // (N, H·D)
    if (i + 1 == layers_.size()) {  // every key is in the cache now: only the wanted rows go on
      mixed = mixed.index_select(0, batch.wanted);
      x = x.index_select(0, batch.wanted);
    }
    kernels::add_linear(x, mixed, layer.o);
    kernels::add_linear(x, kernels::gated_linear(norm(x, layer.post_norm), layer.gate_up),
                        layer.down);
    const auto column = static_cast<std::int64_t>(i) * config_.hidden;
    if (batch.deepstack.defined() && column < batch.deepstack.size(1)) {
      const at::Tensor seen = batch.deepstack.narrow(1, column, config_.hidden);
      x.add_(i + 1 == layers_.size() ? seen.index_select(0, batch.wanted) : seen);
    }
    if (on_layer && !on_layer()) break;
  }
  return x;
}

// positions: (3, N). Frequency j turns by positions[axis_[j]] · frequencies_[j].
RotaryAngles Decoder::angles(const at::Tensor& positions) const {
  const at::Tensor places = positions.index_select(0, axis_).t().to(at::kFloat);  // (N, D/2)
  return rotary_angles(places * frequencies_, embed_tokens_.scalar_type());
}

at::Tensor Decoder::attend(const Layer& layer, std::int64_t index, const at::Tensor& x,
                           const RotaryAngles& turn, const CachedAttention& attention) const {
  const at::Tensor qkv =
      kernels::linear(x, layer.qkv)
          .view({x.size(0), config_.heads + 2 * config_.kv_heads, config_.head_dim});
  const kernels::PackedHeads packed{qkv,      layer.q_norm, layer.k_norm, config_.rms_norm_eps,
                                    turn.cos, turn.sin,     config_.heads};
  if (attention.takes(packed)) return attention.attend(index, packed, layer.windowed);
  at::Tensor q = qkv.narrow(1, 0, config_.heads);                 // (N, H, D)
  at::Tensor k = qkv.narrow(1, config_.heads, config_.kv_heads);  // (N, K, D)
  const at::Tensor v = qkv.narrow(1, config_.heads + config_.kv_heads, config_.kv_heads);
  if (config_.qk_norm) {
    q = norm_of_heads(q, layer.q_norm);
    k = norm_of_heads(k, layer.k_norm);
  }
  return attention.attend(index, rotate(q, turn), rotate(k, turn), v, layer.windowed);
}

at::Tensor Decoder::norm(const at::Tensor& x, const at::Tensor& weight) const {
  return kernels::rms_norm(x, weight, config_.rms_norm_eps);
}

// Each head by itself: (N, H, D) as N·H rows.
at::Tensor Decoder::norm_of_heads(const at::Tensor& x, const at::Tensor& weight) const {
  return norm(x.reshape({-1, config_.head_dim}), weight).view(x.sizes());
}

at::Tensor Decoder::logits(const at::Tensor& hidden) const {
  return kernels::linear(norm(hidden, norm_), head_);  // (k, V)
}

kernels::TokenScores Decoder::score(const at::Tensor& hidden,
                                    const kernels::AskedTokens& asked) const {
  return kernels::score_tokens(norm(hidden, norm_), head_, asked);
}

}  // namespace evalcar::models::decoder
