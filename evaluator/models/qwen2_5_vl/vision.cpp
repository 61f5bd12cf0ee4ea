// Shapes: P patches of all pictures in the batch, U = P / merge² units (tokens), C hidden, H heads,
// D = C/H.
#include "evaluator/models/qwen2_5_vl/vision.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>

#include <string>

#include "evaluator/kernels/rms_norm.h"
#include "evaluator/models/patch_embedding.h"

namespace evalcar::models::qwen2_5_vl {
namespace {

constexpr double kNormEps = 1e-6;  // fixed in the architecture, not in config.json

at::Tensor int64_tensor(const std::vector<std::int64_t>& values, at::Device device) {
  return at::tensor(at::ArrayRef<std::int64_t>(values), at::TensorOptions().dtype(at::kLong))
      .to(device);
}

}  // namespace

VisionTower::VisionTower(const VisionConfig& config, const weights::Arena& arena,
                         AttentionKind attention)
    : config_(config), attention_(attention) {
  patch_embed_ = fold_frames(arena.tensor("visual.patch_embed.proj.weight"), config.channels,
                             config.temporal_patch);
  for (std::int64_t i = 0; i < config.depth; ++i) {
    const std::string name = "visual.blocks." + std::to_string(i) + ".";
    const auto tensor = [&](const char* part) { return arena.tensor(name + part); };
    blocks_.push_back({.norm1 = tensor("norm1.weight"),
                       .qkv_weight = tensor("attn.qkv.weight"),
                       .qkv_bias = tensor("attn.qkv.bias"),
                       .proj_weight = tensor("attn.proj.weight"),
                       .proj_bias = tensor("attn.proj.bias"),
                       .norm2 = tensor("norm2.weight"),
                       .gate_up_weight = tensor("mlp.gate_up_proj.weight"),
                       .gate_up_bias = tensor("mlp.gate_up_proj.bias"),
                       .down_weight = tensor("mlp.down_proj.weight"),
                       .down_bias = tensor("mlp.down_proj.bias"),
                       .full_attention = config.full_attention[static_cast<std::size_t>(i)]});
  }
  merger_norm_ = arena.tensor("visual.merger.ln_q.weight");
  merger_0_weight_ = arena.tensor("visual.merger.mlp.0.weight");
  merger_0_bias_ = arena.tensor("visual.merger.mlp.0.bias");
  merger_2_weight_ = arena.tensor("visual.merger.mlp.2.weight");
  merger_2_bias_ = arena.tensor("visual.merger.mlp.2.bias");
  frequencies_ =
      rotary_frequencies(config.rope_theta, config.head_dim() / 2, patch_embed_.device());
}

at::Tensor VisionTower::encode(const at::Tensor& patches, std::span<const ImageGrid> grids,
                               const OnLayer& on_layer) const {
  const TowerOrder order = tower_order(grids, config_.merge, config_.window_tokens());
  const at::Device device = patches.device();
  const std::int64_t unit = config_.merge * config_.merge;

  // A convolution whose kernel is its stride is a product: (P, elements) · (elements, C).
  at::Tensor x = at::linear(patches.to(patch_embed_.scalar_type()), patch_embed_);  // (P, C)
  x = x.view({-1, unit * config_.hidden})
          .index_select(0, int64_tensor(order.unit_order, device))
          .view({-1, config_.hidden});

  const RotaryAngles turn = angles(order);
  for (const Block& block : blocks_) {
    const auto& runs = block.full_attention ? order.frames : order.windows;
    x = x + attend(block, kernels::rms_norm(x, block.norm1, kNormEps), turn, runs);
    x = x + mlp(block, kernels::rms_norm(x, block.norm2, kNormEps));
    if (on_layer && !on_layer()) break;
  }
  return merge(x).index_select(0, int64_tensor(order.unit_restore, device));  // (U, out_hidden)
}

// The first half of a head's frequencies turns with the patch's row, the second with its column.
RotaryAngles VisionTower::angles(const TowerOrder& order) const {
  const auto axis = [&](const std::vector<std::int64_t>& places) {  // (P, head_dim/4)
    return int64_tensor(places, frequencies_.device()).to(at::kFloat).unsqueeze(1) * frequencies_;
  };
  return rotary_angles(at::cat({axis(order.patch_h), axis(order.patch_w)}, 1), at::kFloat);
}

at::Tensor VisionTower::attend(const Block& block, const at::Tensor& x, const RotaryAngles& turn,
                               std::span<const BlockRun> runs) const {
  const at::Tensor qkv = at::linear(x, block.qkv_weight, block.qkv_bias)
                             .view({x.size(0), 3, config_.heads, config_.head_dim()});
  const at::Tensor q = rotate(qkv.select(1, 0), turn);  // (P, H, D)
  const at::Tensor k = rotate(qkv.select(1, 1), turn);
  const at::Tensor v = qkv.select(1, 2);
  at::Tensor out = at::empty_like(x);  // (P, C)
  for (const BlockRun& run : runs) {
    const std::int64_t rows = run.count * run.length;
    const auto part = [&](const at::Tensor& all) { return all.narrow(0, run.first, rows); };
    part(out).copy_(block_attention(part(q), part(k), part(v), run.count, run.length, attention_));
  }
  return at::linear(out, block.proj_weight, block.proj_bias);
}

at::Tensor VisionTower::mlp(const Block& block, const at::Tensor& x) const {
  const at::Tensor both = at::linear(x, block.gate_up_weight, block.gate_up_bias);  // (P, 2·I)
  const at::Tensor gate = at::silu(both.narrow(1, 0, config_.intermediate));
  const at::Tensor up = both.narrow(1, config_.intermediate, config_.intermediate);
  return at::linear(gate * up, block.down_weight, block.down_bias);
}

at::Tensor VisionTower::merge(const at::Tensor& x) const {
  const at::Tensor units = kernels::rms_norm(x, merger_norm_, kNormEps)
                               .view({-1, config_.merge * config_.merge * config_.hidden});
  const at::Tensor inner = at::gelu(at::linear(units, merger_0_weight_, merger_0_bias_));
  return at::linear(inner, merger_2_weight_, merger_2_bias_);
}

}  // namespace evalcar::models::qwen2_5_vl
