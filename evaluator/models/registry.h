// The architectures that this program computes, found by what config.json says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "evaluator/models/model.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::models {

/// The model that `<dir>/config.json` describes, without weights. kUnsupported for an architecture
/// that is not known, listing the known ones; kNotFound or kCorruption for the file.
/// `gives_up_tie`: the output head has weights of its own, whatever the file ties
/// (Plan::gives_up_tie).
Result<std::unique_ptr<Model>> make_model(const FileSystem& files, const std::string& dir,
                                          bool gives_up_tie = false);

/// The same, with the SHA-256 of that configuration (of the file's values, whatever its layout).
struct ConfiguredModel {
  std::unique_ptr<Model> model;
  std::string config_sha256;
};
Result<ConfiguredModel> make_configured_model(const FileSystem& files, const std::string& dir,
                                              bool gives_up_tie = false);

struct KnownModel {
  std::string model_type;
  std::string architecture;
};
std::vector<KnownModel> known_models();

}  // namespace evalcar::models
