// Which files of a DeepSpeed checkpoint are there, by name and structure.
#pragma once

#include <string>
#include <vector>

#include "store/checkpoint/folder.h"

namespace evalcar::checkpoint {

/// The state files of one tag's folder. Paths relative to the checkpoint ("global_step5/…").
struct DeepspeedFiles {
  std::string folder;                    ///< of the tag, relative; empty: the checkpoint itself
  std::vector<std::string> optimizers;   ///< *_optim_states.pt, by rank
  std::string model;                     ///< mp_rank_00_model_states.pt; empty if not there
  std::vector<std::string> rank_models;  ///< zero_pp_rank_R_mp_rank_00_model_states.pt, by rank
};

/// Whether `folder` looks like one: `latest` beside the folder of a tag, a folder global_step*, or
/// such a folder itself.
bool looks_like_deepspeed(const Folder& folder);

/// Reads `latest` and lists the folder that it names (a checkpoint that is such a folder itself
/// needs none). kUnavailable where files are missing or torn: each has to end in a whole ZIP
/// directory; kUnsupported by name for pipeline, tensor and expert parallelism.
Result<DeepspeedFiles> list_deepspeed(const FileSystem& files, const Folder& folder);

}  // namespace evalcar::checkpoint
