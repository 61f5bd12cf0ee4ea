// torch.distributed.checkpoint (DCP) folders.
#include "store/checkpoint/layout_entry.h"

namespace evalcar::checkpoint {

bool holds_dcp(const Folder& folder) {
  return folder.has(".metadata") ||
         any_entry(folder, [](std::string_view name) { return name.ends_with(".distcp"); });
}

namespace {

bool recognise(const LayoutScene& scene) {
  return holds_dcp(scene.folder) || holds_dcp(scene.shards) || holds_dcp(scene.ema_shards);
}

}  // namespace

const LayoutEntry& dcp_layout() {
  static constexpr LayoutEntry kEntry = {
      .layout = Layout::kDcp,
      .name = "dcp",
      .looked_for = {},
      .unread = "a torch.distributed.checkpoint (DCP) folder (.metadata, *.distcp)",
      .recognise = recognise,
  };
  return kEntry;
}

}  // namespace evalcar::checkpoint
