#include "evaluator/models/qwen2_5_vl/layout.h"

namespace evalcar::models::qwen2_5_vl {
namespace {

using weights::SourceTensor;
using weights::WeightLayout;

// Tensors of two matrices one above the other, so that one product computes both.
void add_gate_up(WeightLayout& layout, const std::string& mlp, std::int64_t intermediate,
                 std::int64_t hidden) {
  layout.add_stacked(
      mlp + "gate_up_proj.weight",
      {SourceTensor{.name = mlp + "gate_proj.weight", .shape = {intermediate, hidden}},
       SourceTensor{.name = mlp + "up_proj.weight", .shape = {intermediate, hidden}}});
}

void add_vision_block(WeightLayout& layout, const VisionConfig& c, const std::string& block) {
  layout.add(block + "norm1.weight", {c.hidden});
  layout.add(block + "attn.qkv.weight", {3 * c.hidden, c.hidden});
  layout.add(block + "attn.qkv.bias", {3 * c.hidden});
  layout.add(block + "attn.proj.weight", {c.hidden, c.hidden});
  layout.add(block + "attn.proj.bias", {c.hidden});
  layout.add(block + "norm2.weight", {c.hidden});
  add_gate_up(layout, block + "mlp.", c.intermediate, c.hidden);
  layout.add_stacked(block + "mlp.gate_up_proj.bias",
                     {SourceTensor{.name = block + "mlp.gate_proj.bias", .shape = {c.intermediate}},
                      SourceTensor{.name = block + "mlp.up_proj.bias", .shape = {c.intermediate}}});
  layout.add(block + "mlp.down_proj.weight", {c.hidden, c.intermediate});
  layout.add(block + "mlp.down_proj.bias", {c.hidden});
}

void add_vision(WeightLayout& layout, const VisionConfig& c) {
  layout.add_reshaped("visual.patch_embed.proj.weight", {c.hidden, c.patch_elements()},
                      {c.hidden, c.channels, c.temporal_patch, c.patch, c.patch});
  for (std::int64_t i = 0; i < c.depth; ++i)
    add_vision_block(layout, c, "visual.blocks." + std::to_string(i) + ".");
  const std::int64_t merged = c.hidden * c.merge * c.merge;
  layout.add("visual.merger.ln_q.weight", {c.hidden});
  layout.add("visual.merger.mlp.0.weight", {merged, merged});
  layout.add("visual.merger.mlp.0.bias", {merged});
  layout.add("visual.merger.mlp.2.weight", {c.out_hidden, merged});
  layout.add("visual.merger.mlp.2.bias", {c.out_hidden});
}

void add_text_layer(WeightLayout& layout, const TextConfig& c, const std::string& layer) {
  const std::int64_t q = c.heads * c.head_dim(), kv = c.kv_heads * c.head_dim();
  const std::string attention = layer + "self_attn.";
  layout.add(layer + "input_layernorm.weight", {c.hidden});
  layout.add_stacked(attention + "qkv_proj.weight",
                     {SourceTensor{.name = attention + "q_proj.weight", .shape = {q, c.hidden}},
                      SourceTensor{.name = attention + "k_proj.weight", .shape = {kv, c.hidden}},
                      SourceTensor{.name = attention + "v_proj.weight", .shape = {kv, c.hidden}}});
  layout.add_stacked(attention + "qkv_proj.bias",
                     {SourceTensor{.name = attention + "q_proj.bias", .shape = {q}},
                      SourceTensor{.name = attention + "k_proj.bias", .shape = {kv}},
                      SourceTensor{.name = attention + "v_proj.bias", .shape = {kv}}});
  layout.add(attention + "o_proj.weight", {c.hidden, q});
  layout.add(layer + "post_attention_layernorm.weight", {c.hidden});
  add_gate_up(layout, layer + "mlp.", c.intermediate, c.hidden);
  layout.add(layer + "mlp.down_proj.weight", {c.hidden, c.intermediate});
}

}  // namespace

std::string canonical_name(std::string_view stored) {
  constexpr std::string_view kText = "model.language_model.";
  constexpr std::string_view kVision = "model.visual.";
  if (stored.starts_with(kText)) return "model." + std::string(stored.substr(kText.size()));
  if (stored.starts_with(kVision)) return "visual." + std::string(stored.substr(kVision.size()));
  return std::string(stored);
}

WeightLayout weight_layout(const Config& config) {
  WeightLayout layout;
  layout.canonical_name = &canonical_name;
  const TextConfig& text = config.text;
  layout.add("model.embed_tokens.weight", {text.vocab, text.hidden});
  add_vision(layout, config.vision);
  for (std::int64_t i = 0; i < text.layers; ++i)
    add_text_layer(layout, text, "model.layers." + std::to_string(i) + ".");
  layout.add("model.norm.weight", {text.hidden});
  if (config.tied_head) {
    layout.ties.push_back({"lm_head.weight", "model.embed_tokens.weight"});
  } else {
    layout.add("lm_head.weight", {text.vocab, text.hidden});
  }
  return layout;
}

}  // namespace evalcar::models::qwen2_5_vl
