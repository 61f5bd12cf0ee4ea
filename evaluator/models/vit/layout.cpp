#include "evaluator/models/vit/layout.h"

#include <string>

namespace evalcar::models::vit {
namespace {

using weights::WeightLayout;

void add_linear(WeightLayout& layout, const std::string& name, std::int64_t rows,
                std::int64_t width) {
  layout.add(name + ".weight", {rows, width});
  layout.mark(name + ".weight", weights::Rows::kMany);
  layout.add(name + ".bias", {rows});
}

void add_norm(WeightLayout& layout, const std::string& name, std::int64_t width) {
  layout.add(name + ".weight", {width});
  layout.add(name + ".bias", {width});
}

void add_merger(WeightLayout& layout, const Config& c, const std::string& merger,
                std::int64_t norm_width) {
  add_norm(layout, merger + c.names.merger_norm, norm_width);
  add_linear(layout, merger + c.names.merger_fc1, c.merged(), c.merged());
  add_linear(layout, merger + c.names.merger_fc2, c.out_hidden, c.merged());
}

}  // namespace

void add_tensors(WeightLayout& layout, const Config& c) {
  layout.add_reshaped("visual.patch_embed.proj.weight", {c.hidden, c.kernel_elements()},
                      {c.hidden, c.channels, c.temporal_patch, c.patch, c.patch});
  if (c.patch_bias) layout.add("visual.patch_embed.proj.bias", {c.hidden});
  if (c.grid_side > 0) layout.add("visual.pos_embed.weight", {c.grid_side * c.grid_side, c.hidden});
  for (std::int64_t i = 0; i < c.depth; ++i) {
    const std::string block = "visual.blocks." + std::to_string(i) + ".";
    add_norm(layout, block + "norm1", c.hidden);
    add_linear(layout, block + "attn.qkv", 3 * c.hidden, c.hidden);
    add_linear(layout, block + "attn.proj", c.hidden, c.hidden);
    add_norm(layout, block + "norm2", c.hidden);
    add_linear(layout, block + "mlp." + c.names.fc1, c.intermediate, c.hidden);
    add_linear(layout, block + "mlp." + c.names.fc2, c.hidden, c.intermediate);
  }
  add_merger(layout, c, "visual.merger.", c.hidden);
  for (std::size_t i = 0; i < c.deepstack.size(); ++i)
    add_merger(layout, c, "visual.deepstack_merger_list." + std::to_string(i) + ".", c.merged());
}

}  // namespace evalcar::models::vit
