// Where the checkpoints of a training may lie, if not in the output directory that was named: one
// folder down (run-0/checkpoint-5 of a search for hyper-parameters, v0-<date>/checkpoint-5), or
// nowhere, with the model in the directory itself.
#pragma once

#include <string>

#include "store/base/file_system.h"

namespace evalcar::watch {

struct Elsewhere {
  std::string what;  ///< was found, and where; "": nothing
  std::string mend;  ///< what to do then

  std::string text() const { return what.empty() ? "" : what + ": " + mend; }
};

/// One look, a level down and no deeper, at some hundred folders at most. For a directory in which
/// nothing has a name by `pattern`.
Elsewhere look_elsewhere(const FileSystem& files, const std::string& output_dir,
                         const std::string& pattern);

}  // namespace evalcar::watch
