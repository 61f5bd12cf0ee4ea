// The differences between two hashed checkpoints, for `evalcar inspect --diff`.
#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::cli {

/// Two checkpoints with the hash of each tensor. All references outlive the call.
struct DiffInput {
  const FileSystem& files;
  const checkpoint::Plan& here;
  const std::vector<checkpoint::TensorDigest>& here_digests;
  const checkpoint::Plan& there;
  const std::vector<checkpoint::TensorDigest>& there_digests;
  const std::string& other;  ///< the other checkpoint's name, as given
  int threads = 1;
};

/// {"other", "equal", "different": [{"name", "what": "dtype" | "shape" | "values", "here" and
/// "there": {"dtype", "shape"}, "elements_changed", "max_abs", "relative_l2"}, …], "only_here",
/// "only_there"}, tensors by name. The last three of a different tensor are null where its values
/// cannot be compared (see ValueDifference). Only tensors whose hashes differ are read again.
Result<nlohmann::ordered_json> diff_json(const DiffInput& input);

/// The same for people, the largest relative change first.
void print_diff(const nlohmann::ordered_json& diff, std::ostream& out);

}  // namespace evalcar::cli
