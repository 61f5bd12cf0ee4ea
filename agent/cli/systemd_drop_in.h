// `evalcar init --systemd`: what a unit cannot know, and a configuration does.
#pragma once

#include <string>

#include "agent/config/settings.h"
#include "store/base/file_system.h"

namespace evalcar::cli {

struct DropIn {
  std::string instance;  ///< NAME of evalcar@NAME, from the configuration's NAME.toml
  std::string content;
};

/// User and group: those of the output directories, so that the files of its trainer can be read
/// and linked. ReadWritePaths: those directories (where `_evalcar` lies beside one, the folder of
/// both), and publish.dir, watch.snapshot_dir and the folders of store.path and server.unix_socket
/// where set; of what does not exist yet, the nearest folder above it that does. What is below /dev
/// is writable anyway and left out. Slice: the topmost one where limits.cpu_weight or
/// limits.io_weight is set. `config_file` names the instance. `settings`: with absolute paths.
/// Errors: kInvalidArgument: no output directory, several owners, a name that no unit can have.
Result<DropIn> make_drop_in(const FileSystem& files, const config::Settings& settings,
                            const std::string& config_file);

}  // namespace evalcar::cli
