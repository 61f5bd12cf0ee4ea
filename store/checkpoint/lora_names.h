// Names of modules and tensors across the generations of transformers, as far as adapters need it.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// What one tensor of an adapter is.
enum class AdapterPart {
  kA,
  kB,
  kEmbeddingA,
  kEmbeddingB,
  kReplacement,
  kReplaced,  ///< of a module that modules_to_save has a copy of: what it was, and nobody computes
              ///< with
};

struct AdapterName {
  AdapterPart part = AdapterPart::kReplacement;
  /// Of an update: the module. Of the others: the tensor ("…weight", "…bias").
  std::string target;
};

/// Splits "base_model.model.<module>.lora_A.weight" and its like; wrappers of FSDP, torch.compile
/// and activation checkpointing are taken out. kUnsupported by name for anything else of PEFT's.
Result<AdapterName> parse_adapter_name(std::string_view name);

/// Good where the tensors may be a model's. kUnsupported where they are those of an adapter, or of
/// a model with one still in it, which no model has under such names: as a model they would load
/// with random weights. PEFT's own prefix tells; without it (transformers' add_adapter) a layer
/// that lies in base_layer beside its factors does, but for Phi-4-multimodal, which is such a
/// model.
Status check_no_adapter(std::span<const TensorPlan> tensors, const std::string& dir);

/// The part of a name that all generations share: without the modules that wrap a text model
/// ("model.language_model.layers.0.q" and "model.layers.0.q" → "layers.0.q") or a tower
/// ("vision_tower.vision_model.head" → "vision_tower.head"), and with 5.x's name of the module
/// around experts ("layers.0.block_sparse_moe.gate" → "layers.0.mlp.gate").
std::string shared_name(std::string_view name);

/// Finds tensors of a base model by the names of an adapter.
class BaseNames {
 public:
  explicit BaseNames(const Plan& base);
  /// Index of the tensor: of the very name, else of the only one with the same shared name. Absent
  /// if there is none; kInvalidArgument if there are several.
  Result<std::optional<std::size_t>> find(const std::string& name) const;
  /// Whether a tensor has this shared name.
  bool has_shared(const std::string& name) const { return by_shared_name_.contains(name); }
  /// Whether a tensor has a shared name that begins so.
  bool has_shared_prefix(const std::string& prefix) const {
    const auto first = by_shared_name_.lower_bound(prefix);
    return first != by_shared_name_.end() && first->first.starts_with(prefix);
  }

 private:
  const Plan& base_;
  std::map<std::string, std::vector<std::size_t>, std::less<>> by_shared_name_;
};

}  // namespace evalcar::checkpoint
