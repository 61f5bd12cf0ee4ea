#include "evaluator/models/qwen2_5_vl/layout.h"

#include <string>

namespace evalcar::models::qwen2_5_vl {
namespace {

using weights::WeightLayout;

void add_linear(WeightLayout& layout, const std::string& name, std::int64_t rows,
                std::int64_t width) {
  layout.add(name + ".weight", {rows, width});
  layout.mark(name + ".weight", weights::Rows::kMany);
  layout.add(name + ".bias", {rows});
}

void add_vision_block(WeightLayout& layout, const VisionConfig& c, const std::string& block) {
  layout.add(block + "norm1.weight", {c.hidden});
  add_linear(layout, block + "attn.qkv", 3 * c.hidden, c.hidden);
  add_linear(layout, block + "attn.proj", c.hidden, c.hidden);
  layout.add(block + "norm2.weight", {c.hidden});
  layout.add_linears(block + "mlp.", "gate_up_proj",
                     {{"gate_proj", c.intermediate}, {"up_proj", c.intermediate}}, c.hidden, true);
  layout.mark(block + "mlp.gate_up_proj.weight", weights::Rows::kMany);
  add_linear(layout, block + "mlp.down_proj", c.hidden, c.intermediate);
}

}  // namespace

void add_tensors(WeightLayout& layout, const VisionConfig& c) {
  layout.add_reshaped("visual.patch_embed.proj.weight", {c.hidden, c.kernel_elements()},
                      {c.hidden, c.channels, c.temporal_patch, c.patch, c.patch});
  for (std::int64_t i = 0; i < c.depth; ++i)
    add_vision_block(layout, c, "visual.blocks." + std::to_string(i) + ".");
  const std::int64_t merged = c.hidden * c.merge * c.merge;
  layout.add("visual.merger.ln_q.weight", {c.hidden});
  add_linear(layout, "visual.merger.mlp.0", merged, merged);
  add_linear(layout, "visual.merger.mlp.2", c.out_hidden, merged);
}

}  // namespace evalcar::models::qwen2_5_vl
