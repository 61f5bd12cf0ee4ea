#include "store/checkpoint/lora_names.h"

#include <algorithm>
#include <array>
#include <set>

#include "store/checkpoint/numeric.h"
#include "store/checkpoint/tensor_names.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
/// DistributedDataParallel's; before PEFT's own prefix it can be nothing else.
constexpr std::string_view kParallel = "module.";
constexpr std::string_view kBaseLayer = "base_layer";
constexpr std::string_view kSavedModules = "modules_to_save";
/// Beside those: the module as it was, in the state of the whole model.
constexpr std::string_view kOriginalModule = "original_module";
constexpr std::string_view kUsualAdapter = "default";
/// What the parts begin with that the methods of PEFT add to modules.
constexpr std::array<std::string_view, 8> kTuners = {"lora_", "hada_", "lokr_", "ia3_",
                                                     "vera_", "oft_",  "boft_", "prompt_encoder"};
/// The adapters that are a part of Phi-4-multimodal as it is published, and of its code.
constexpr std::array<std::string_view, 2> kOfPhi4 = {"vision", "speech"};
/// Modules that hold a text model, at the beginning of a name; releases nest them differently.
constexpr std::array<std::string_view, 4> kHolders = {"model", "language_model", "text_model",
                                                      "transformer"};

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

std::string without_wrappers(std::string_view name) {
  const std::string bare = unwrapped_name(name);
  std::string_view rest = bare;  // a hostile name may have a million of them
  while (rest.starts_with(kParallel)) rest.remove_prefix(kParallel.size());
  return std::string(rest);
}

bool is_of_tuner(std::string_view part) {
  return std::any_of(kTuners.begin(), kTuners.end(),
                     [&](std::string_view tuner) { return part.starts_with(tuner); });
}

/// Whether a part of a name is one that PEFT puts into modules.
bool is_of_peft(std::string_view part) {
  return part == kBaseLayer || part == kSavedModules || is_of_tuner(part);
}

/// The state of a module has the name of the adapter in it ("….lora_A.default.weight"), which
/// PEFT's own files have not.
std::string without_adapter_name(const std::string& target) {
  bool after_factor = false;
  bool after_saved = false;
  return without_parts(target, [&](std::string_view part, bool) {
    const bool is_name =
        (after_factor && part != "weight") || (after_saved && part == kUsualAdapter);
    after_factor = part == "lora_A" || part == "lora_B" || part == "lora_embedding_A" ||
                   part == "lora_embedding_B";
    after_saved = part == kSavedModules;
    return is_name;
  });
}

/// A name at the first of its parts that `wanted` says: the module before it, the part after it.
struct AtPart {
  std::string_view module;
  std::string_view next;
};

template <typename Wanted>
std::optional<AtPart> at_part(std::string_view name, const Wanted& wanted) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    if (wanted(name.substr(begin, end - begin))) {
      const std::string_view rest = end < name.size() ? name.substr(end + 1) : std::string_view();
      return AtPart{name.substr(0, begin), rest.substr(0, rest.find('.'))};
    }
    begin = end + 1;
  }
  return std::nullopt;
}

/// A factor of an adapter beside the layer that it changes; null: there is none.
const TensorPlan* find_factor(std::span<const TensorPlan> tensors) {
  std::set<std::string, std::less<>> wrapped;
  for (const TensorPlan& tensor : tensors) {
    const auto is_layer = [](std::string_view part) { return part == kBaseLayer; };
    if (const auto at = at_part(tensor.name, is_layer)) wrapped.emplace(at->module);
  }
  if (wrapped.empty()) return nullptr;
  for (const TensorPlan& tensor : tensors) {
    const auto at = at_part(tensor.name, is_of_tuner);
    if (at && wrapped.contains(at->module) && !is_one_of(at->next, kOfPhi4)) return &tensor;
  }
  return nullptr;
}

}  // namespace

Result<AdapterName> parse_adapter_name(std::string_view name) {
  const std::string bare = without_wrappers(name);
  if (!bare.starts_with(kPrefix)) {
    return make_error(ErrorCode::kUnsupported,
                      "tensor " + quote_name(name) + ": expected a name that begins with \"" +
                          std::string(kPrefix) + "\", as PEFT writes them");
  }
  std::string target = without_adapter_name(bare.substr(kPrefix.size()));
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
  // releases, and a whole model's state, theirs in modules_to_save.
  AdapterPart kind = AdapterPart::kReplacement;
  target = without_parts(target, [&](std::string_view part, bool) {
    if (part == kOriginalModule) kind = AdapterPart::kReplaced;
    return part == kBaseLayer || part == kSavedModules || part == kOriginalModule;
  });
  return AdapterName{kind, std::move(target)};
}

Status check_no_adapter(std::span<const TensorPlan> tensors, const std::string& dir) {
  const TensorPlan* first = nullptr;
  bool has_base = false;
  for (const TensorPlan& tensor : tensors) {
    const std::string bare = without_wrappers(tensor.name);
    if (!bare.starts_with(kPrefix)) continue;
    bool of_peft = false;
    without_parts(bare, [&](std::string_view part, bool) {
      of_peft = of_peft || is_of_peft(part);
      has_base = has_base || part == kBaseLayer;
      return false;
    });
    if (of_peft && first == nullptr) first = &tensor;
  }
  if (first == nullptr) {
    const TensorPlan* const factor = find_factor(tensors);
    if (factor == nullptr) return {};
    return make_error(ErrorCode::kUnsupported,
                      dir + ": a model with an adapter of PEFT still in it (such as " +
                          quote_name(factor->name) +
                          "), whose own layers lie in base_layer: it would load as a model of "
                          "random weights. Give the adapter by itself, as save_pretrained of such "
                          "a model writes it (adapter_config.json and adapter_model.safetensors)");
  }
  return make_error(
      ErrorCode::kUnsupported,
      dir + ": " +
          (has_base ? "a model with an adapter of PEFT still in it" : "adapter tensors only") +
          " (such as " + quote_name(first->name) +
          "), which would load as a model of random weights. A copy of the checkpoint with the "
          "training's adapter_config.json in its folder (Trainer.save_model writes that file) is "
          "merged over its base model if the tensors are in a DCP; else merge with peft "
          "(merge_and_unload)");
}

std::string shared_name(std::string_view name) {
  bool leading = true;
  bool of_tower = false;
  std::string shared = without_parts(name, [&](std::string_view part, bool) {
    const bool nested = of_tower && part == "vision_model";
    of_tower = part == "vision_tower";
    leading = leading && is_one_of(part, kHolders);
    return leading || nested;
  });
  constexpr std::string_view kSparse = ".block_sparse_moe.";
  const std::size_t sparse = shared.find(kSparse);
  if (sparse != std::string::npos) shared.replace(sparse, kSparse.size(), ".mlp.");
  return shared;
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
