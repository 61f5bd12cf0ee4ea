// One look at one kind of weights: reads everything that the decision about it rests on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/watch/completeness.h"
#include "agent/watch/content.h"
#include "agent/watch/neighbour.h"
#include "agent/watch/rewrite_watch.h"
#include "agent/watch/watch_options.h"
#include "store/base/file_system.h"
#include "store/checkpoint/layout.h"

namespace evalcar::watch {

/// Where an output directory lies, as far as that is known: what its sizes and times are worth.
enum class Place {
  kUnknown,
  kLocal,   ///< a disk of this machine
  kRemote,  ///< what a file server's client tells may be what it remembers
};

/// What a look is given; all of it must outlive the look.
struct KindInFolder {
  const FileSystem& files;
  const WatchOptions& options;
  const std::string& path;  ///< of the checkpoint
  const FilesSeen& all;     ///< of the folder, two levels deep, listed before
  const checkpoint::LayoutReport& report;
  const checkpoint::KindState& state;
  const KnownContent& before;  ///< what was complete last; without a fingerprint: nothing was
  const RewriteWatch& rewrite;
  const RewriteWatch::TailOf& tail_of;
  /// A checkpoint with a higher step is complete, and a file of it is not older than that.
  const std::function<bool(std::int64_t written_after_ns)>& newer_complete;
  /// The whole files of this kind and layout of the next higher step that has them; may be null.
  const WholeKind* newer = nullptr;
  /// Another folder has the same small files: they are all that its run wrote.
  const std::function<bool(const WholeKind&)>& has_twin;
  /// Of this kind; null: nothing is complete, or this folder was not seen from its beginning on.
  const CommonFiles* common = nullptr;
  Place place = Place::kUnknown;
  bool stood = false;  ///< it was at rest for longer than a file server's client remembers
  std::chrono::milliseconds unchanged_for{};
};

struct KindLook {
  Evidence evidence;
  std::vector<WatchedFile> files;
  KnownContent content;            ///< of `files`
  std::optional<WholeKind> whole;  ///< of them, if they are
};

KindLook look_at_kind(const KindInFolder& kind);

}  // namespace evalcar::watch
