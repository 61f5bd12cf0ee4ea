// What a watcher tells of one kind of weights of one checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/watch/completeness.h"
#include "agent/watch/content.h"
#include "store/checkpoint/layout.h"

namespace evalcar::watch {

/// What is known of one kind of weights of one checkpoint; told again only when it changes.
struct Sighting {
  std::int64_t step = 0;
  std::string folder;  ///< name: "checkpoint-500"
  std::string path;
  checkpoint::Layout layout = checkpoint::Layout::kHuggingFace;
  checkpoint::WeightsKind kind = checkpoint::WeightsKind::kRegular;
  Verdict verdict = Verdict::kWaiting;
  std::string reason;
  /// kComplete: state::content_fingerprint() of `files`; another one is another generation.
  std::string fingerprint;
  std::vector<WatchedFile> files;
  bool rewritten = false;          ///< kComplete: other content of this kind was complete before
  std::uint64_t folder_bytes = 0;  ///< kComplete: of everything in the folder
  /// When the newest file in the folder was written; 0: not looked at, or it holds none.
  std::int64_t folder_written_ns = 0;
};

}  // namespace evalcar::watch
