#include "evaluator/models/qwen2_5_vl/layout.h"

#include <string>

namespace evalcar::models::qwen2_5_vl {
namespace {

using weights::WeightLayout;

void add_vision_block(WeightLayout& layout, const VisionConfig& c, const std::string& block) {
  layout.add(block + "norm1.weight", {c.hidden});
  layout.add(block + "attn.qkv.weight", {3 * c.hidden, c.hidden});
  layout.add(block + "attn.qkv.bias", {3 * c.hidden});
  layout.add(block + "attn.proj.weight", {c.hidden, c.hidden});
  layout.add(block + "attn.proj.bias", {c.hidden});
  layout.add(block + "norm2.weight", {c.hidden});
  layout.add_linears(block + "mlp.", "gate_up_proj",
                     {{"gate_proj", c.intermediate}, {"up_proj", c.intermediate}}, c.hidden, true);
  layout.add(block + "mlp.down_proj.weight", {c.hidden, c.intermediate});
  layout.add(block + "mlp.down_proj.bias", {c.hidden});
}

}  // namespace

void add_tensors(WeightLayout& layout, const VisionConfig& c) {
  layout.add_reshaped("visual.patch_embed.proj.weight", {c.hidden, c.kernel_elements()},
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

}  // namespace evalcar::models::qwen2_5_vl
