// Shapes: P patches of all pictures in the batch, U = P / merge² units (tokens), C hidden, H heads,
// D = C/H.
#include "evaluator/models/vit/tower.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>

#include "evaluator/models/patch_embedding.h"
#include "evaluator/models/vit/grid_positions.h"

namespace evalcar::models::vit {
namespace {

constexpr double kNormEps = 1e-6;  // fixed in the architecture, not in config.json
constexpr std::int64_t kNoWindows = std::numeric_limits<std::int32_t>::max();

template <typename T>
at::Tensor tensor_of(const std::vector<T>& values, at::ScalarType type, at::Device device) {
  return at::tensor(at::ArrayRef<T>(values), at::TensorOptions().dtype(type)).to(device);
}

}  // namespace

at::Tensor Tower::Norm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, weight.sizes(), weight, bias, kNormEps);
}

Tower::Tower(const Config& config, const weights::Arena& arena, AttentionKind attention)
    : config_(config), attention_(attention) {
  const auto tensor = [&](const std::string& name) { return arena.tensor("visual." + name); };
  const auto linear = [&](const std::string& name) {
    return Linear{tensor(name + ".weight"), tensor(name + ".bias"),
                  arena.half("visual." + name + ".weight")};
  };
  const auto norm = [&](const std::string& name) {
    return Norm{tensor(name + ".weight"), tensor(name + ".bias")};
  };
  const auto merger = [&](const std::string& name) {
    return Merger{norm(name + config.names.merger_norm), linear(name + config.names.merger_fc1),
                  linear(name + config.names.merger_fc2)};
  };
  patch_embed_.weight =
      still_kernel(tensor("patch_embed.proj.weight"), config.channels, config.temporal_patch);
  if (config.patch_bias) patch_embed_.bias = tensor("patch_embed.proj.bias");
  if (config.grid_side > 0) grid_ = tensor("pos_embed.weight");
  for (std::int64_t i = 0; i < config.depth; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    blocks_.push_back({.norm1 = norm(block + "norm1"),
                       .qkv = linear(block + "attn.qkv"),
                       .proj = linear(block + "attn.proj"),
                       .norm2 = norm(block + "norm2"),
                       .fc1 = linear(block + "mlp." + config.names.fc1),
                       .fc2 = linear(block + "mlp." + config.names.fc2)});
  }
  merger_ = merger("merger.");
  for (std::size_t i = 0; i < config.deepstack.size(); ++i)
    deepstack_.push_back(merger("deepstack_merger_list." + std::to_string(i) + "."));
  frequencies_ =
      rotary_frequencies(config.rope_theta, config.head_dim() / 2, patch_embed_.weight.device());
}

at::Tensor Tower::encode(const at::Tensor& patches, std::span<const ImageGrid> grids,
                         const OnLayer& on_layer) const {
  const TowerOrder order = tower_order(grids, config_.merge, kNoWindows);
  const RotaryAngles turn = angles(order);
  at::Tensor x = embed(patches, grids);  // (P, C)
  std::vector<at::Tensor> features(1 + deepstack_.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    kernels::add_linear(x, attend(block, block.norm1(x), turn, order.frames), block.proj);
    kernels::add_linear(x, activated(kernels::linear(block.norm2(x), block.fc1)), block.fc2);
    for (std::size_t level = 0; level < deepstack_.size(); ++level) {
      if (config_.deepstack[level] == static_cast<std::int64_t>(i))
        features[1 + level] = merge(deepstack_[level], x);
    }
    if (on_layer && !on_layer()) break;
  }
  features[0] = merge(merger_, x);
  for (at::Tensor& feature : features) {
    if (!feature.defined()) feature = at::empty_like(features[0]);  // stopped: of no use
  }
  return at::cat(features, 1);  // (U, out_hidden · (1 + deepstack))
}

// A convolution whose kernel is its stride is a product: (P, elements) · (elements, C).
at::Tensor Tower::embed(const at::Tensor& patches, std::span<const ImageGrid> grids) const {
  const at::Tensor x =
      kernels::linear(still_patches(patches, patch_embed_.weight, config_.channels), patch_embed_);
  if (!grid_.defined()) return x;
  const GridTaps taps = grid_taps(grids, config_.merge, config_.grid_side);
  const at::Tensor places = tensor_of(taps.indices, at::kLong, x.device()).view({-1, 4});
  const at::Tensor weights = tensor_of(taps.weights, at::kFloat, x.device()).view({-1, 4, 1});
  return x + (at::embedding(grid_, places) * weights).sum(1).to(x.scalar_type());
}

// The first half of a head's frequencies turns with the patch's row, the second with its column.
RotaryAngles Tower::angles(const TowerOrder& order) const {
  const auto axis = [&](const std::vector<std::int64_t>& places) {  // (P, head_dim/4)
    return tensor_of(places, at::kLong, frequencies_.device()).to(at::kFloat).unsqueeze(1) *
           frequencies_;
  };
  return rotary_angles(at::cat({axis(order.patch_h), axis(order.patch_w)}, 1), at::kFloat);
}

at::Tensor Tower::attend(const Block& block, const at::Tensor& x, const RotaryAngles& turn,
                         std::span<const BlockRun> frames) const {
  const at::Tensor qkv =
      kernels::linear(x, block.qkv).view({x.size(0), 3, config_.heads, config_.head_dim()});
  const at::Tensor q = rotate(qkv.select(1, 0), turn);  // (P, H, D)
  const at::Tensor k = rotate(qkv.select(1, 1), turn);
  const at::Tensor v = qkv.select(1, 2);
  at::Tensor out = at::empty_like(x);  // (P, C)
  for (const BlockRun& run : frames) {
    const std::int64_t rows = run.count * run.length;
    const auto part = [&](const at::Tensor& all) { return all.narrow(0, run.first, rows); };
    block_attention(part(q), part(k), part(v), run.count, run.length, attention_, part(out));
  }
  return out;
}

at::Tensor Tower::activated(const at::Tensor& x) const {
  return config_.activation == Activation::kGeluTanh ? at::gelu(x, "tanh")
                                                     : x * at::sigmoid(1.702 * x);
}

// The norm is over a patch, or, where it is as wide, over a unit of merged ones.
at::Tensor Tower::merge(const Merger& merger, const at::Tensor& x) const {
  const at::Tensor normed = merger.norm(x.view({-1, merger.norm.weight.size(0)}));
  const at::Tensor inner = kernels::linear(normed.view({-1, config_.merged()}), merger.fc1);
  return kernels::linear(at::gelu(inner), merger.fc2);
}

}  // namespace evalcar::models::vit
