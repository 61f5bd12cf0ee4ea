// Models of the Hugging Face hub that are on this machine already. Nothing is ever downloaded: a
// model that is not here is an error that prints the command which fetches it.
//
// Two forms are known: `org/name/` (what `hf download --local-dir` writes) and the hub cache's
// `models--org--name/`, whose `refs/main` names the folder in `snapshots/`. Reference:
// huggingface_hub, "Understand caching".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::checkpoint {

/// Folders that may hold models, in the order in which they are searched: `data_dir` (may be
/// empty), then the hub cache that the environment names (HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE,
/// HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub). Reads the environment.
std::vector<std::string> hub_places(const std::string& data_dir);

/// Whether the hub takes `name` for a model's id: "name" or "organisation/name".
bool is_hub_id(std::string_view name);

/// "hf download ID", for messages.
std::string hub_download_command(const std::string& id, const std::string& revision = "main");

/// Which folder holds a model, and which of its files has to be there.
struct HubModel {
  std::string id;                      ///< an id of the hub, or the path of a folder
  std::string revision = "main";       ///< a branch, a tag or a commit
  std::string needed = "config.json";  ///< a folder without this file does not count
};

/// The folder of a model of this id, in one of the `places`. Without the revision "main", the
/// newest snapshot stands in for it; another revision has to be there. kNotFound, with the command
/// that fetches the model, if it is not on this machine; kInvalidArgument if the text is no id.
Result<std::string> find_hub_model(const FileSystem& files, const HubModel& model,
                                   const std::vector<std::string>& places);

/// `model.id` itself if it is a folder, else as find_hub_model(). For what a person has named: a
/// path that is not absolute begins where this process runs.
Result<std::string> find_model(const FileSystem& files, const HubModel& model,
                               const std::vector<std::string>& places);

}  // namespace evalcar::checkpoint
