#include "evaluator/models/llava_onevision/layout.h"

#include <algorithm>
#include <initializer_list>

#include "evaluator/models/decoder/layout.h"

namespace evalcar::models::llava_onevision {
namespace {

using weights::WeightLayout;

constexpr std::string_view kTower = "vision_tower.";

void add_linear(WeightLayout& layout, const std::string& name, std::int64_t rows,
                std::int64_t width, bool bias = true) {
  layout.add(name + ".weight", {rows, width});
  if (bias) layout.add(name + ".bias", {rows});
}

void mark_used(WeightLayout& layout, std::initializer_list<std::string> linears) {
  for (const std::string& name : linears) layout.mark(name + ".weight", weights::Rows::kMany);
}

void add_norm(WeightLayout& layout, const std::string& name, std::int64_t width) {
  layout.add(name + ".weight", {width});
  layout.add(name + ".bias", {width});
}

void add_block(WeightLayout& layout, const VisionConfig& c, const std::string& block, bool used) {
  add_norm(layout, block + "layer_norm1", c.hidden);
  layout.add_linears(block + "self_attn.", "qkv_proj",
                     {{"q_proj", c.hidden}, {"k_proj", c.hidden}, {"v_proj", c.hidden}}, c.hidden,
                     true);
  add_linear(layout, block + "self_attn.out_proj", c.hidden, c.hidden);
  add_norm(layout, block + "layer_norm2", c.hidden);
  add_linear(layout, block + "mlp.fc1", c.intermediate, c.hidden);
  add_linear(layout, block + "mlp.fc2", c.hidden, c.intermediate);
  if (used)
    mark_used(layout, {block + "self_attn.qkv_proj", block + "self_attn.out_proj",
                       block + "mlp.fc1", block + "mlp.fc2"});
}

void add_pooling_head(WeightLayout& layout, const VisionConfig& c, const std::string& head) {
  layout.add(head + "probe", {1, 1, c.hidden});
  layout.add(head + "attention.in_proj_weight", {3 * c.hidden, c.hidden});
  layout.add(head + "attention.in_proj_bias", {3 * c.hidden});
  add_linear(layout, head + "attention.out_proj", c.hidden, c.hidden);
  add_norm(layout, head + "layernorm", c.hidden);
  add_linear(layout, head + "mlp.fc1", c.intermediate, c.hidden);
  add_linear(layout, head + "mlp.fc2", c.hidden, c.intermediate);
}

/// `used`: so many of its blocks.
void add_tower(WeightLayout& layout, const VisionConfig& c, std::int64_t used) {
  const std::string tower(kTower);
  layout.add_reshaped(tower + "embeddings.patch_embedding.weight", {c.hidden, c.patch_elements()},
                      {c.hidden, 3, c.patch, c.patch});
  layout.add(tower + "embeddings.patch_embedding.bias", {c.hidden});
  layout.add(tower + "embeddings.position_embedding.weight", {c.patches(), c.hidden});
  for (std::int64_t i = 0; i < c.depth; ++i)
    add_block(layout, c, tower + "encoder.layers." + std::to_string(i) + ".", i < used);
  add_norm(layout, tower + "post_layernorm", c.hidden);
  if (c.pooling_head) add_pooling_head(layout, c, tower + "head.");
}

/// `name` with `to` in place of `from` at its beginning; unchanged where it begins otherwise.
std::string with_prefix(std::string name, std::string_view from, std::string_view to) {
  if (name.starts_with(from)) name.replace(0, from.size(), to);
  return name;
}

}  // namespace

std::string canonical_name(std::string_view stored) {
  std::string name(stored);
  if (name.starts_with("language_model.")) {
    name = with_prefix(std::move(name), "language_model.model.", "model.");
    return with_prefix(std::move(name), "language_model.lm_head.", "lm_head.");
  }
  if (name.starts_with("model.language_model."))
    return with_prefix(std::move(name), "model.language_model.", "model.");
  for (const char* part : {"vision_tower.", "multi_modal_projector.", "image_newline"})
    name = with_prefix(std::move(name), std::string("model.") + part, part);
  return with_prefix(std::move(name), "vision_tower.vision_model.", kTower);
}

WeightLayout make_layout(const Config& c) {
  WeightLayout layout;
  layout.canonical_name = &canonical_name;
  decoder::add_tensors(layout, c.text);
  add_tower(layout, c.vision, *std::ranges::max_element(c.feature_layers));
  const auto features = c.vision.hidden * static_cast<std::int64_t>(c.feature_layers.size());
  add_linear(layout, "multi_modal_projector.linear_1", c.text.hidden, features, c.projector_bias);
  add_linear(layout, "multi_modal_projector.linear_2", c.text.hidden, c.text.hidden,
             c.projector_bias);
  mark_used(layout, {"multi_modal_projector.linear_1", "multi_modal_projector.linear_2"});
  layout.add("image_newline", {c.text.hidden});
  return layout;
}

}  // namespace evalcar::models::llava_onevision
