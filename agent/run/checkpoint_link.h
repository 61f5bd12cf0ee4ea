// The one thing that is ever created inside a checkpoint: `checkpoint-N/eval`, a link to our
// results, for lmms-engine's own evaluation client, which looks for them there.
#pragma once

#include <string>

#include "agent/config/settings.h"
#include "agent/watch/watcher.h"
#include "store/base/file_system.h"

namespace evalcar::run {

/// The folder of one step's results: where it is, and as seen from inside the checkpoint.
struct ResultsPlace {
  std::string dir;
  std::string target;
};

/// Makes the link by the rule of publish.link_in_checkpoint, if it is not there. Call it at the
/// moment that a checkpoint is judged complete. It is made only if that is the newest one at the
/// moment of making it, which no retention is about to take: an entry that appears in a folder
/// while the trainer deletes it makes that fail. `pattern`: watch.pattern, which names checkpoints.
/// The folder's time is put back. The results' folder is made first: a link that dangled would make
/// the trainer's own makedirs() and copytree() fail. What goes wrong is only logged.
void link_in_checkpoint(FileSystem& files, config::LinkInCheckpoint mode,
                        const watch::Sighting& seen, const std::string& pattern,
                        const ResultsPlace& results);

}  // namespace evalcar::run
