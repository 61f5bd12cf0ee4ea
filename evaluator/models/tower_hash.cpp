#include "evaluator/models/tower_hash.h"

#include <utility>
#include <vector>

#include "evaluator/models/decoder/layout.h"

namespace evalcar::models {

std::string tower_sha256(std::span<const checkpoint::TensorDigest> tensors,
                         const weights::WeightLayout& layout) {
  std::vector<checkpoint::TensorDigest> of_tower;
  for (const checkpoint::TensorDigest& tensor : tensors) {
    std::string name = layout.canonical_name(tensor.name);
    if (decoder::is_tensor_of_decoder(name)) continue;
    of_tower.push_back({std::move(name), tensor.dtype, tensor.shape, tensor.sha256});
  }
  return checkpoint::weights_sha256(std::move(of_tower));
}

}  // namespace evalcar::models
