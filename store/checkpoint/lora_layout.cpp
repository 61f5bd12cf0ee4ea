// LoRA adapters of PEFT.
#include "store/checkpoint/layout_entry.h"

namespace evalcar::checkpoint {
namespace {

bool recognise(const LayoutScene& scene) {
  return scene.folder.has("adapter_config.json") || scene.folder.has("adapter_model.safetensors");
}

}  // namespace

const LayoutEntry& lora_layout() {
  static constexpr LayoutEntry kEntry = {
      .layout = Layout::kLoraAdapter,
      .name = "lora_adapter",
      .looked_for = {},
      .unread = "a LoRA adapter (adapter_config.json)",
      .recognise = recognise,
  };
  return kEntry;
}

}  // namespace evalcar::checkpoint
