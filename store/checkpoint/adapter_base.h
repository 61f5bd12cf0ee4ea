// Where the base model of an adapter lies.
#pragma once

#include <string>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::checkpoint {

/// Whether the folder holds an adapter, so that most of its model lies elsewhere.
bool is_adapter(const FileSystem& files, const std::string& dir);

/// The folder of the base model of the adapter in `dir`: `configured` if it is not empty (a folder,
/// or an id of the hub), else `base_model_name_or_path` of adapter_config.json: an absolute path,
/// or an id of the hub that is in the local cache. A relative path is refused: it begins where the
/// trainer ran; and so is an id that is also the path of a model from where this process runs, for
/// a trainer that ran there has taken that. Errors as find_model(), naming evaluate.base_model;
/// reads the environment.
Result<std::string> adapter_base(const FileSystem& files, const std::string& dir,
                                 const std::string& configured);

}  // namespace evalcar::checkpoint
