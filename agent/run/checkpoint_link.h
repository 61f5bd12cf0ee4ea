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

/// Makes the link by the rule of publish.link_in_checkpoint, if it is not there. Call it only for
/// the newest checkpoint, which no retention is about to take, at the moment it is judged complete;
/// the folder's time is put back. The results' folder is made first: a link that dangled would make
/// the trainer's own makedirs() and copytree() fail. What goes wrong is only logged.
void link_in_checkpoint(FileSystem& files, config::LinkInCheckpoint mode,
                        const watch::Sighting& seen, const ResultsPlace& results);

}  // namespace evalcar::run
