// Where a configuration and the weights beside it contradict each other.
//
// Reading and merging take any state dict; but a model whose norm is missing, or whose layers are
// fewer than config.json says, would be loaded with random weights and a warning that nobody sees.
// Looked at are only the families that are known by name (known_text_models.h), and only what holds
// for every model of them; what is unknown gives no warning.
#pragma once

#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// In words, each of one line: what config.json in `folder` states and the plan's tensors do not
/// have (hidden size, vocabulary, layers, what each layer is made of with its biases, norms and
/// experts, a head that nothing ties, the blocks of Qwen's tower). None where there is no
/// such file (or `folder` is empty), it cannot be read, it is of another family, the text model
/// lies in a module that is not known, or the weights are quantised.
std::vector<std::string> warnings_of_config(const FileSystem& files, const std::string& folder,
                                            const Plan& plan);

}  // namespace evalcar::checkpoint
