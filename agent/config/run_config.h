// What a training run says of its evaluations in its own `config.yaml`, which lmms-engine writes
// into the output directory.
#pragma once

#include <string>
#include <vector>

#include "agent/config/config.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::config {

struct RunConfig {
  TakenFile file;
  std::vector<Override> taken;     ///< keys of ours, with the file as their source
  std::vector<std::string> notes;  ///< what stands there and has no effect here
};

/// Of `<output_dir>/config.yaml`: trainer_args.eval_config and what belongs to it. kNotFound: there
/// is no such file, or it has no eval_config with tasks; kCorruption: it is not YAML, is larger
/// than 1 MiB, nested too deeply, or uses anchors.
Result<RunConfig> read_run_config(const FileSystem& files, const std::string& output_dir);

/// The overrides of a run's own file that nobody else has set: neither `config`'s file nor its
/// command line.
std::vector<Override> overrides_left_open(const Config& config, const RunConfig& run);

}  // namespace evalcar::config
