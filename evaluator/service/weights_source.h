// Where a model's weights, and what belongs to it beside them, lie on disk.
#pragma once

#include <string>

#include "evaluator/service/model_text.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/layout.h"
#include "store/checkpoint/plan.h"

namespace evalcar::service {

struct WeightsSource {
  std::string dir;
  checkpoint::WeightsKind kind = checkpoint::WeightsKind::kRegular;
  std::string base_model;  ///< an adapter's, or as given; may be empty
  ModelFolders folders;
  bool needs_base = false;  ///< something of the model is read from there
};

/// Finds what belongs to the model in `dir`. kInvalidArgument for weights that are not "regular",
/// "ema" or "average"; kNotFound names the file that is in neither folder.
Result<WeightsSource> find_weights(const FileSystem& files, const std::string& dir,
                                   const std::string& weights, const std::string& base_model);

/// The errors are those of checkpoint::make_plan().
Result<checkpoint::Plan> plan_of(const FileSystem& files, const WeightsSource& source);

}  // namespace evalcar::service
