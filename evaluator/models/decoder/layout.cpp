#include "evaluator/models/decoder/layout.h"

#include <string>

namespace evalcar::models::decoder {
namespace {

using weights::WeightLayout;

void add_layer(WeightLayout& layout, const Config& c, const std::string& layer) {
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
  layout.add(layer + "input_layernorm.weight", {c.hidden});
  layout.add_linears(attention, "qkv_proj", {{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}},
                     c.hidden, c.qkv_bias);
  if (c.qk_norm) {
    layout.add(attention + "q_norm.weight", {c.head_dim});
    layout.add(attention + "k_norm.weight", {c.head_dim});
  }
  layout.add_linears(attention, "o_proj", {{"o_proj", c.hidden}}, q, c.output_bias);
  layout.add(layer + "post_attention_layernorm.weight", {c.hidden});
  layout.add_linears(mlp, "gate_up_proj",
                     {{"gate_proj", c.intermediate}, {"up_proj", c.intermediate}}, c.hidden,
                     c.mlp_bias);
  layout.add_linears(mlp, "down_proj", {{"down_proj", c.hidden}}, c.intermediate, c.mlp_bias);
  for (const std::string& matrix :
       {attention + "qkv_proj", attention + "o_proj", mlp + "gate_up_proj", mlp + "down_proj"})
    layout.mark(matrix + ".weight", weights::Rows::kFew);
}

}  // namespace

void add_tensors(WeightLayout& layout, const Config& config) {
  layout.add("model.embed_tokens.weight", {config.vocab, config.hidden});
  for (std::int64_t i = 0; i < config.layers; ++i)
    add_layer(layout, config, "model.layers." + std::to_string(i) + ".");
  layout.add("model.norm.weight", {config.hidden});
  if (config.tied_head) {
    layout.ties.push_back({"lm_head.weight", "model.embed_tokens.weight"});
    layout.mark("model.embed_tokens.weight", weights::Rows::kFew);
  } else {
    layout.add("lm_head.weight", {config.vocab, config.hidden});
    layout.mark("lm_head.weight", weights::Rows::kFew);
  }
}

bool is_tensor_of_decoder(std::string_view name) {
  return name.starts_with("model.") || name.starts_with("lm_head.");
}

}  // namespace evalcar::models::decoder
