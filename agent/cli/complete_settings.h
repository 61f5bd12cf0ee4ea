// A configuration made ready for its use: its paths absolute, what it names looked for, and checked
// beyond what the table of keys can.
#pragma once

#include <string>

#include "agent/config/config.h"
#include "store/base/file_system.h"
#include "store/base/timed_file_system.h"

namespace evalcar::cli {

/// What the settings are for.
enum class Use {
  kWatch,  ///< run: an output directory must be named; a data folder that is not there is waited
           ///< for
  kOnce,   ///< run --once: the data folder must be there too
  kServe,  ///< serve: jobs bring directories and tasks
  kOneCheckpoint,  ///< eval: no output directory is named
};

/// Absolute and without "." or a slash at the end; links stay, and it need not exist. "" stays.
std::string absolute_path(const std::string& path);

/// Relative paths of a configuration are relative to the working directory; links stay.
void make_paths_absolute(config::Settings& settings);

/// evaluate.base_model may be an id of the hub: it becomes the folder of that model on this
/// machine. kInvalidArgument, with the command that fetches it, where there is none. Reads the
/// environment, for the place of the hub cache. Before make_paths_absolute(), which takes an id for
/// a path.
Status place_base_model(const FileSystem& files, config::Settings& settings);

/// Turns the paths of a configuration into absolute ones and checks what the table of keys cannot:
/// that something is to be watched, that every task is known, and that the data folder is there.
Status complete_settings(const FileSystem& files, config::Settings& settings, Use use);

/// Whether evaluate.data_dir is a folder; "" is. kNotFound: it may come (a mount, a download);
/// kInvalidArgument: it is something else.
Status check_data_dir(const FileSystem& files, const std::string& data_dir);

/// Places that the settings name and that may be on a mount whose server goes away are asked in
/// threads of their own from now on: the agent must not go with it.
void guard_places(TimedFileSystem& files, const config::Settings& settings);

}  // namespace evalcar::cli
