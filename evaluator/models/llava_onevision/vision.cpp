// Shapes: N squares, S = side² patches of each, C hidden, H heads, D = C/H.
#include "evaluator/models/llava_onevision/vision.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>

#include <algorithm>
#include <string>
#include <utility>

namespace evalcar::models::llava_onevision {

VisionTower::VisionTower(const VisionConfig& config, std::vector<std::int64_t> feature_layers,
                         const weights::Arena& arena, AttentionKind attention)
    : config_(config), feature_layers_(std::move(feature_layers)), attention_(attention) {
  const auto tensor = [&](const std::string& name) { return arena.tensor("vision_tower." + name); };
  const auto linear = [&](const std::string& name) {
    return Linear{tensor(name + ".weight"), tensor(name + ".bias"),
                  arena.half("vision_tower." + name + ".weight")};
  };
  const auto norm = [&](const std::string& name) {
    return Norm{tensor(name + ".weight"), tensor(name + ".bias")};
  };
  patch_embed_ = linear("embeddings.patch_embedding");
  positions_ = tensor("embeddings.position_embedding.weight");
  // Blocks after the last one whose features are taken are not computed.
  const std::int64_t needed = *std::ranges::max_element(feature_layers_);
  for (std::int64_t i = 0; i < needed; ++i) {
    const std::string block = "encoder.layers." + std::to_string(i) + ".";
    blocks_.push_back({.norm1 = norm(block + "layer_norm1"),
                       .qkv = linear(block + "self_attn.qkv_proj"),
                       .out = linear(block + "self_attn.out_proj"),
                       .norm2 = norm(block + "layer_norm2"),
                       .fc1 = linear(block + "mlp.fc1"),
                       .fc2 = linear(block + "mlp.fc2")});
  }
}

at::Tensor VisionTower::encode(const at::Tensor& patches, const OnLayer& on_layer) const {
  // A convolution whose kernel is its stride is a product: (N·S, elements) · (elements, C).
  at::Tensor x = kernels::linear(patches.to(patch_embed_.weight.scalar_type()), patch_embed_);
  x = (x.view({-1, config_.patches(), config_.hidden}) + positions_).view({-1, config_.hidden});
  std::vector<at::Tensor> features(feature_layers_.size(), x);  // of layer 0, unless set below
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    x = x + attend(block, normed(block.norm1, x));
    const at::Tensor inner = kernels::linear(normed(block.norm2, x), block.fc1);
    x = x + kernels::linear(at::gelu(inner, "tanh"), block.fc2);
    for (std::size_t k = 0; k < feature_layers_.size(); ++k) {
      if (feature_layers_[k] == static_cast<std::int64_t>(i) + 1) features[k] = x;
    }
    if (on_layer && !on_layer()) break;
  }
  return features.size() == 1 ? features[0] : at::cat(features, 1);
}

at::Tensor VisionTower::normed(const Norm& norm, const at::Tensor& x) const {
  return at::layer_norm(x, {config_.hidden}, norm.weight, norm.bias, config_.norm_eps);
}

at::Tensor VisionTower::attend(const Block& block, const at::Tensor& x) const {
  const std::int64_t head_dim = config_.hidden / config_.heads;
  const at::Tensor qkv =
      kernels::linear(x, block.qkv).view({x.size(0), 3, config_.heads, head_dim});
  const std::int64_t squares = x.size(0) / config_.patches();
  const at::Tensor seen = at::empty_like(x);
  block_attention(qkv.select(1, 0), qkv.select(1, 1), qkv.select(1, 2), squares, config_.patches(),
                  attention_, seen);
  return kernels::linear(seen, block.out);
}

}  // namespace evalcar::models::llava_onevision
