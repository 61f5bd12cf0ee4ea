#include "agent/run/checkpoint_link.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/watch/tree.h"
#include "store/checkpoint/layout.h"

namespace evalcar::run {
namespace {

/// The target, followed from inside the checkpoint, is the folder of the results.
bool leads_to(const FileSystem& files, const std::string& checkpoint, const ResultsPlace& results) {
  const bool absolute = results.target.starts_with('/');
  const auto there =
      files.real_path(absolute ? results.target : join_path(checkpoint, results.target));
  const auto meant = files.real_path(results.dir);
  return there.has_value() && meant.has_value() && *there == *meant;
}

/// No folder of a later checkpoint is there, not even one that was begun: a trainer removes none
/// before it has begun the next. What cannot be asked counts as there.
bool is_still_newest(const FileSystem& files, const watch::Sighting& seen,
                     const std::string& pattern) {
  const auto entries = files.list(parent_path(seen.path), watch::kMaxFolderEntries);
  return entries.has_value() && std::ranges::none_of(*entries, [&](const DirectoryEntry& entry) {
           return checkpoint::step_of_name(entry.name, pattern).value_or(seen.step) > seen.step;
         });
}

}  // namespace

void link_in_checkpoint(FileSystem& files, config::LinkInCheckpoint mode,
                        const watch::Sighting& seen, const std::string& pattern,
                        const ResultsPlace& results) {
  const bool lmms_engine = seen.layout == checkpoint::Layout::kLmmsEngineFsdp2;
  if (mode == config::LinkInCheckpoint::kNever) return;
  if (mode == config::LinkInCheckpoint::kAuto && !lmms_engine) return;
  const auto folder = files.info(seen.path);
  const std::string link = join_path(seen.path, "eval");
  if (!folder.has_value() || folder->type != FileType::kDirectory || files.info(link)) return;
  if (const Status made = make_directories(files, results.dir); !made.has_value()) {
    spdlog::warn("{}; {} is not made", made.error().message, link);
    return;
  }
  if (!leads_to(files, seen.path, results)) {
    spdlog::warn("{} is not made: {} would not lead to {}", link, results.target, results.dir);
    return;
  }
  // Last of all, and not by an earlier look: between that and here rows were written.
  if (!is_still_newest(files, seen, pattern)) return;
  if (const Status made = files.symbolic_link(results.target, link); !made.has_value()) {
    spdlog::warn("{}", made.error().message);
    return;
  }
  if (const Status put_back = files.set_mtime(seen.path, folder->mtime_ns); !put_back) {
    spdlog::warn("{}", put_back.error().message);
  }
}

}  // namespace evalcar::run
