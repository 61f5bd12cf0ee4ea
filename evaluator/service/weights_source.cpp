#include "evaluator/service/weights_source.h"

#include "evaluator/engine/engine.h"
#include "store/checkpoint/adapter_base.h"

namespace evalcar::service {

Result<WeightsSource> find_weights(const FileSystem& files, const std::string& dir,
                                   const std::string& weights, const std::string& base_model) {
  const auto kind = checkpoint::weights_kind_from_name(weights);
  if (!kind.has_value()) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "weights = \"" + weights + "\": expected \"regular\", \"ema\" or \"average\"");
  }
  WeightsSource source{.dir = dir, .kind = *kind, .base_model = base_model, .folders = {}};
  // Most of an adapter's model lies elsewhere, its configuration too.
  source.needs_base = checkpoint::is_adapter(files, dir);
  if (source.needs_base) {
    EVALCAR_ASSIGN_OR_RETURN(source.base_model, checkpoint::adapter_base(files, dir, base_model));
  }
  EVALCAR_ASSIGN_OR_RETURN(
      source.folders,
      find_model_folders(files, dir, source.base_model, [&](const std::string& config_dir) {
        return engine::reads_pictures(files, config_dir);
      }));
  const ModelFolders& folders = source.folders;
  for (const std::string& folder : {folders.config, folders.tokenizer, folders.processor})
    source.needs_base = source.needs_base || (!folder.empty() && folder == source.base_model);
  return source;
}

Result<checkpoint::Plan> plan_of(const FileSystem& files, const WeightsSource& source) {
  checkpoint::LayoutOptions layout;
  layout.base_model = source.base_model;
  return checkpoint::make_plan(files, source.dir, source.kind, layout);
}

}  // namespace evalcar::service
