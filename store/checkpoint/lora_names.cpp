#include "store/checkpoint/lora_names.h"

#include <algorithm>
#include <array>

#include "store/checkpoint/numeric.h"
#include "store/checkpoint/tensor_names.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
/// DistributedDataParallel's; before PEFT's own prefix it can be nothing else.
constexpr std::string_view kParallel = "module.";
/// Modules that hold a text model, at the beginning of a name; releases nest them differently.
constexpr std::array<std::string_view, 3> kHolders = {"model", "language_model", "transformer"};

struct Suffix {
  std::string_view text;
  AdapterPart part;
};
constexpr std::array<Suffix, 4> kSuffixes = {{{".lora_A.weight", AdapterPart::kA},
                                              {".lora_B.weight", AdapterPart::kB},
                                              {".lora_embedding_A", AdapterPart::kEmbeddingA},
                                              {".lora_embedding_B", AdapterPart::kEmbeddingB}}};

/// The name without those of its parts that `drop` says; `drop(part, is_first)`.
template <typename Drop>
std::string without_parts(std::string_view name, const Drop& drop) {
  std::string kept;
  while (true) {
    const std::size_t dot = name.find('.');
    const std::string_view part = name.substr(0, dot);
    if (!drop(part, kept.empty())) {
      if (!kept.empty()) kept += '.';
      kept += part;
    }
    if (dot == std::string_view::npos) return kept;
    name.remove_prefix(dot + 1);
  }
}

bool is_one_of(std::string_view part, std::span<const std::string_view> parts) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

}  // namespace

Result<AdapterName> parse_adapter_name(std::string_view name) {
  const std::string unwrapped = unwrapped_name(name);
  std::string_view bare = unwrapped;
  while (bare.starts_with(kParallel)) bare.remove_prefix(kParallel.size());
  if (!bare.starts_with(kPrefix)) {
    return make_error(ErrorCode::kUnsupported,
                      "tensor " + quote_name(name) + ": expected a name that begins with \"" +
                          std::string(kPrefix) + "\", as PEFT writes them");
  }
  std::string target(bare.substr(kPrefix.size()));
  for (const Suffix& suffix : kSuffixes) {
    if (!target.ends_with(suffix.text)) continue;
    target.resize(target.size() - suffix.text.size());
    if (target.empty() || target.find(".lora_") != std::string::npos) break;
    return AdapterName{suffix.part, std::move(target)};
  }
  if (target.find(".lora_") != std::string::npos || target.starts_with("lora_")) {
    return make_error(ErrorCode::kUnsupported, "tensor " + quote_name(name) +
                                                   " is a part of an adapter that is not merged "
                                                   "here (DoRA, a bias of lora_B, …)");
  }
  // The layer that LoRA wraps keeps its own parameters in base_layer; modules_to_save of old
  // releases theirs in modules_to_save.
  target = without_parts(target, [](std::string_view part, bool) {
    return part == "base_layer" || part == "modules_to_save";
  });
  return AdapterName{AdapterPart::kReplacement, std::move(target)};
}

std::string shared_name(std::string_view name) {
  bool leading = true;
  return without_parts(name, [&](std::string_view part, bool) {
    leading = leading && is_one_of(part, kHolders);
    return leading;
  });
}

BaseNames::BaseNames(const Plan& base) : base_(base) {
  for (std::size_t i = 0; i < base.tensors.size(); ++i) {
    by_shared_name_[shared_name(base.tensors[i].name)].push_back(i);
  }
}

Result<std::optional<std::size_t>> BaseNames::find(const std::string& name) const {
  if (const TensorPlan* const exact = base_.find(name)) {
    return std::optional<std::size_t>(static_cast<std::size_t>(exact - base_.tensors.data()));
  }
  const auto found = by_shared_name_.find(shared_name(name));
  if (found == by_shared_name_.end()) return std::optional<std::size_t>();
  if (found->second.size() > 1) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the adapter's " + quote_name(name) + " could be " +
                          quote_name(base_.tensors[found->second[0]].name) + " or " +
                          quote_name(base_.tensors[found->second[1]].name) + " of the base model");
  }
  return std::optional<std::size_t>(found->second[0]);
}

}  // namespace evalcar::checkpoint
