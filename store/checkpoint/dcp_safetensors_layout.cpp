// Folders of torch.distributed.checkpoint's HuggingFaceStorageWriter.
#include "store/checkpoint/layout_entry.h"

namespace evalcar::checkpoint {
namespace {

bool is_shard(std::string_view name) {
  return name.starts_with("shard-") && name.ends_with(".safetensors");
}

bool recognise(const LayoutScene& scene) { return any_entry(scene.folder, is_shard); }

}  // namespace

const LayoutEntry& dcp_safetensors_layout() {
  static constexpr LayoutEntry kEntry = {
      .layout = Layout::kDcpSafetensors,
      .name = "dcp_safetensors",
      .looked_for = {},
      .unread = "a folder of torch.distributed.checkpoint's safetensors shards (shard-*)",
      .recognise = recognise,
  };
  return kEntry;
}

}  // namespace evalcar::checkpoint
