#include "store/checkpoint/adapter_base.h"

#include "store/checkpoint/hub_cache.h"
#include "store/checkpoint/lora_plan.h"
#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kHint =
    "; give the base model's folder (evaluate.base_model, or --model_name_or_class of merge and "
    "inspect)";

}  // namespace

bool is_adapter(const FileSystem& files, const std::string& dir) {
  return files.info_followed(join_path(dir, "adapter_config.json")).has_value();
}

Result<std::string> adapter_base(const FileSystem& files, const std::string& dir,
                                 const std::string& configured) {
  if (!configured.empty()) {
    return find_model(files, HubModel{.id = configured}, hub_places({}));
  }
  EVALCAR_ASSIGN_OR_RETURN(const Folder folder, open_folder(files, dir));
  EVALCAR_ASSIGN_OR_RETURN(const LoraConfig config, read_lora_config(files, folder));
  const std::string where = join_path(dir, "adapter_config.json") + ": base_model_name_or_path ";
  const std::string& base = config.base_model;
  if (base.empty()) {
    return make_error(ErrorCode::kNotFound, where + "is empty" + std::string(kHint));
  }
  const bool absolute = base.front() == '/';
  if (base.find('\0') != std::string::npos || (!absolute && !is_hub_id(base))) {
    return make_error(ErrorCode::kInvalidArgument,
                      where + "is " + quote_name(base) +
                          ", neither an absolute path nor a model's id on the hub" +
                          std::string(kHint));
  }
  auto found = absolute ? find_model(files, HubModel{.id = base}, {})
                        : find_hub_model(files, HubModel{.id = base, .revision = config.revision},
                                         hub_places({}));
  if (!absolute && files.info_followed(join_path(base, "config.json")).has_value()) {
    return make_error(
        ErrorCode::kInvalidArgument,
        where + "is " + quote_name(base) + ", and there is a folder " + base +
            " in the working directory: a trainer that ran here has taken that, any other one the "
            "hub's model (" +
            (found.has_value() ? *found : "which is not in the cache") + ")" + std::string(kHint));
  }
  if (found.has_value()) return found;
  const bool missing = found.error().code == ErrorCode::kInvalidArgument && absolute;
  return make_error(
      missing ? ErrorCode::kNotFound : found.error().code,
      where + "is " + quote_name(base) + ": " +
          (missing ? std::string("no such folder on this machine") : found.error().message) +
          std::string(kHint));
}

}  // namespace evalcar::checkpoint
