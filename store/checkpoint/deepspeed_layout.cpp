// DeepSpeed's ZeRO partitions.
#include "store/checkpoint/layout_entry.h"

namespace evalcar::checkpoint {
namespace {

bool recognise(const LayoutScene& scene) {
  return any_entry(scene.folder,
                   [](std::string_view name) { return name.starts_with("global_step"); });
}

}  // namespace

const LayoutEntry& deepspeed_layout() {
  static constexpr LayoutEntry kEntry = {
      .layout = Layout::kDeepspeedZero,
      .name = "deepspeed_zero",
      .looked_for = {},
      .unread = "a DeepSpeed ZeRO checkpoint (global_step*)",
      .recognise = recognise,
  };
  return kEntry;
}

}  // namespace evalcar::checkpoint
