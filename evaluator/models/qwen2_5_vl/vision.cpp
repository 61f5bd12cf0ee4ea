// Shapes: P patches of all pictures in the batch, U = P / merge² units (tokens), C hidden, H heads,
// D = C/H.
#include "evaluator/models/qwen2_5_vl/vision.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <string>

#include "evaluator/kernels/rms_norm.h"
#include "evaluator/models/patch_embedding.h"
#include "evaluator/models/whole_vectors.h"

namespace evalcar::models::qwen2_5_vl {
namespace {

constexpr double kNormEps = 1e-6;  // fixed in the architecture, not in config.json

at::Tensor int64_tensor(const std::vector<std::int64_t>& values, at::Device device) {
  return at::tensor(at::ArrayRef<std::int64_t>(values), at::TensorOptions().dtype(at::kLong))
      .to(device);
}

kernels::LinearWeights linear_of(const weights::Arena& arena, const std::string& name) {
  return {arena.tensor(name + ".weight"), arena.tensor(name + ".bias"),
          arena.half(name + ".weight")};
}

}  // namespace

VisionTower::VisionTower(const VisionConfig& config, const weights::Arena& arena,
                         AttentionKind attention)
    : config_(config), attention_(attention) {
  patch_embed_ = still_kernel(arena.tensor("visual.patch_embed.proj.weight"), config.channels,
                              config.temporal_patch);
  for (std::int64_t i = 0; i < config.depth; ++i) {
    const std::string name = "visual.blocks." + std::to_string(i) + ".";
    const auto linear = [&](const char* part) { return linear_of(arena, name + part); };
    GatedLayer mlp{linear("mlp.gate_up_proj"), linear("mlp.down_proj")};
    if (patch_embed_.is_cuda()) mlp = in_whole_vectors(mlp);
    blocks_.push_back({.norm1 = arena.tensor(name + "norm1.weight"),
                       .norm2 = arena.tensor(name + "norm2.weight"),
                       .qkv = linear("attn.qkv"),
                       .proj = linear("attn.proj"),
                       .gate_up = mlp.gate_up,
                       .down = mlp.down,
                       .full_attention = config.full_attention[static_cast<std::size_t>(i)]});
  }
  merger_norm_ = arena.tensor("visual.merger.ln_q.weight");
  merger_0_ = linear_of(arena, "visual.merger.mlp.0");
  merger_2_ = linear_of(arena, "visual.merger.mlp.2");
  frequencies_ =
      rotary_frequencies(config.rope_theta, config.head_dim() / 2, patch_embed_.device());
}

at::Tensor VisionTower::encode(const at::Tensor& patches, std::span<const ImageGrid> grids,
                               const OnLayer& on_layer) const {
  const TowerOrder order = tower_order(grids, config_.merge, config_.window_tokens());
  const at::Device device = patches.device();
  const std::int64_t unit = config_.merge * config_.merge;

  // A convolution whose kernel is its stride is a product: (P, elements) · (elements, C).
  at::Tensor x = kernels::linear(still_patches(patches, patch_embed_, config_.channels),
                                 {patch_embed_});  // (P, C)
  x = x.view({-1, unit * config_.hidden})
          .index_select(0, int64_tensor(order.unit_order, device))
          .view({-1, config_.hidden});

  const RotaryAngles turn = angles(order);
  const Places windows = places_of(order.windows, device), frames{.runs = order.frames};
  for (const Block& block : blocks_) {
    const Places& places = block.full_attention ? frames : windows;
    kernels::add_linear(x, attend(block, kernels::rms_norm(x, block.norm1, kNormEps), turn, places),
                        block.proj);
    kernels::add_linear(
        x, kernels::gated_linear(kernels::rms_norm(x, block.norm2, kNormEps), block.gate_up),
        block.down);
    if (on_layer && !on_layer()) break;
  }
  return merge(x).index_select(0, int64_tensor(order.unit_restore, device));  // (U, out_hidden)
}

VisionTower::Places VisionTower::places_of(std::span<const BlockRun> runs, at::Device device) {
  if (!device.is_cuda()) return {.runs = runs, .at_once = {}};
  return {.runs = runs, .at_once = kernels::windows_at(block_begins(runs), device)};
}

// The first half of a head's frequencies turns with the patch's row, the second with its column.
RotaryAngles VisionTower::angles(const TowerOrder& order) const {
  const auto axis = [&](const std::vector<std::int64_t>& places) {  // (P, head_dim/4)
    return int64_tensor(places, frequencies_.device()).to(at::kFloat).unsqueeze(1) * frequencies_;
  };
  return rotary_angles(at::cat({axis(order.patch_h), axis(order.patch_w)}, 1), at::kFloat);
}

at::Tensor VisionTower::attend(const Block& block, const at::Tensor& x, const RotaryAngles& turn,
                               const Places& places) const {
  const at::Tensor qkv =
      kernels::linear(x, block.qkv).view({x.size(0), 3, config_.heads, config_.head_dim()});
  const at::Tensor q = rotate(qkv.select(1, 0), turn);  // (P, H, D)
  const at::Tensor k = rotate(qkv.select(1, 1), turn);
  const at::Tensor v = qkv.select(1, 2);
  at::Tensor out = at::empty_like(x);  // (P, C)
  if (attention_ == AttentionKind::kSdpa && kernels::has_window_kernel(q, k, v, places.at_once)) {
    kernels::window_attention(q, k, v, places.at_once, out);
    return out;
  }
  for (const BlockRun& run : places.runs) {
    const std::int64_t rows = run.count * run.length;
    const auto part = [&](const at::Tensor& all) { return all.narrow(0, run.first, rows); };
    block_attention(part(q), part(k), part(v), run.count, run.length, attention_, part(out));
  }
  return out;
}

at::Tensor VisionTower::merge(const at::Tensor& x) const {
  const at::Tensor units = kernels::rms_norm(x, merger_norm_, kNormEps)
                               .view({-1, config_.merge * config_.merge * config_.hidden});
  return kernels::linear(at::gelu(kernels::linear(units, merger_0_)), merger_2_);
}

}  // namespace evalcar::models::qwen2_5_vl
