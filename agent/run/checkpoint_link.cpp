#include "agent/run/checkpoint_link.h"

#include <spdlog/spdlog.h>

namespace evalcar::run {

void link_in_checkpoint(FileSystem& files, config::LinkInCheckpoint mode,
                        const watch::Sighting& seen, const std::string& results) {
  const bool lmms_engine = seen.layout == checkpoint::Layout::kLmmsEngineFsdp2;
  if (mode == config::LinkInCheckpoint::kNever) return;
  if (mode == config::LinkInCheckpoint::kAuto && !lmms_engine) return;
  const auto folder = files.info(seen.path);
  const std::string link = join_path(seen.path, "eval");
  if (!folder.has_value() || folder->type != FileType::kDirectory || files.info(link)) return;
  if (const Status made = files.symbolic_link(results, link); !made.has_value()) {
    spdlog::warn("{}", made.error().message);
    return;
  }
  if (const Status put_back = files.set_mtime(seen.path, folder->mtime_ns); !put_back) {
    spdlog::warn("{}", put_back.error().message);
  }
}

}  // namespace evalcar::run
