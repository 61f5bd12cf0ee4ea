#include "store/checkpoint/tensor_names.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::array<std::string_view, 3> kWrappers = {"_orig_mod", "_checkpoint_wrapped_module",
                                                       "_fsdp_wrapped_module"};
constexpr std::string_view kParallel = "module.";
constexpr std::string_view kExtraState = "_extra_state";

/// How often a name begins with DDP's, something being left behind them.
std::size_t parallels_of(std::string_view name) {
  std::size_t count = 0;
  for (; name.size() > kParallel.size() && name.starts_with(kParallel); ++count) {
    name.remove_prefix(kParallel.size());
  }
  return count;
}

/// " of FILE", where a tensor lies in one.
std::string place_of(const Plan& plan, const TensorPlan& tensor) {
  if (tensor.pieces.empty() || tensor.pieces[0].file >= plan.files.size()) return {};
  return " of " + plan.files[tensor.pieces[0].file].path;
}

/// The identity of a set of weights is made of lines of names (weights_sha256).
Status check_characters(const Plan& plan) {
  for (const TensorPlan& tensor : plan.tensors) {
    const bool is_text = std::ranges::all_of(tensor.name, [](const char c) {
      const auto byte = static_cast<unsigned char>(c);
      return byte >= 0x20 && byte != 0x7f;
    });
    if (is_text) continue;
    return make_error(ErrorCode::kCorruption, "tensor " + quote_name(tensor.name) +
                                                  place_of(plan, tensor) +
                                                  ": the name holds a control character");
  }
  return {};
}

void move_extra_states(Plan& plan) {
  const auto is_state = [](const TensorPlan& tensor) { return is_extra_state(tensor.name); };
  for (const TensorPlan& tensor : plan.tensors) {
    if (is_state(tensor)) plan.extra_states.push_back(tensor.name);
  }
  std::erase_if(plan.tensors, is_state);
  std::sort(plan.extra_states.begin(), plan.extra_states.end());
  plan.extra_states.erase(std::unique(plan.extra_states.begin(), plan.extra_states.end()),
                          plan.extra_states.end());
}

/// Inserts "vision_model." behind `prefix` ("model.vision_tower.") where what lies there is a tower
/// of SigLIP or CLIP by its modules; other towers (InternVL's, Pixtral's) name theirs otherwise.
void nest_tower(std::vector<std::string>& names, std::string_view prefix) {
  constexpr std::string_view kNested = "vision_model.";
  constexpr std::array<std::string_view, 5> kModules = {"embeddings.", "encoder.", "pre_layrnorm.",
                                                        "post_layernorm.", "head."};
  constexpr std::array<std::string_view, 2> kMarks = {"embeddings.patch_embedding.weight",
                                                      "encoder.layers.0.layer_norm1.weight"};
  const auto rest_of = [prefix](std::string_view name) {
    return name.starts_with(prefix) ? name.substr(prefix.size()) : std::string_view();
  };
  std::size_t marks = 0;
  for (const std::string& name : names) {
    const std::string_view rest = rest_of(name);
    if (rest.starts_with(kNested)) return;
    if (std::find(kMarks.begin(), kMarks.end(), rest) != kMarks.end()) ++marks;
  }
  if (marks < kMarks.size()) return;
  for (std::string& name : names) {
    const std::string_view rest = rest_of(name);
    if (std::any_of(kModules.begin(), kModules.end(),
                    [rest](std::string_view module) { return rest.starts_with(module); })) {
      name.insert(prefix.size(), kNested);
    }
  }
}

}  // namespace

std::string unwrapped_name(std::string_view name) {
  std::string kept;
  bool found = false;
  for (std::string_view rest = name; !rest.empty();) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    rest.remove_prefix(std::min(dot + 1, rest.size()));
    if (std::find(kWrappers.begin(), kWrappers.end(), part) != kWrappers.end()) {
      found = true;
      continue;
    }
    if (!kept.empty()) kept += '.';
    kept += part;
  }
  return found && !kept.empty() ? kept : std::string(name);
}

std::vector<std::string> unwrapped_names(const std::vector<std::string_view>& names) {
  std::vector<std::string> unwrapped;
  unwrapped.reserve(names.size());
  for (const std::string_view name : names) unwrapped.push_back(unwrapped_name(name));
  std::size_t common = SIZE_MAX;
  for (const std::string& name : unwrapped) common = std::min(common, parallels_of(name));
  for (std::string& name : unwrapped) name.erase(0, common * kParallel.size());
  return unwrapped;
}

bool is_extra_state(std::string_view name) {
  return name == kExtraState ||
         (name.ends_with(kExtraState) && name[name.size() - kExtraState.size() - 1] == '.');
}

Status settle_names(Plan& plan) {
  move_extra_states(plan);
  EVALCAR_RETURN_IF_ERROR(check_characters(plan));
  std::vector<std::string_view> stored;
  stored.reserve(plan.tensors.size());
  for (const TensorPlan& tensor : plan.tensors) stored.push_back(tensor.name);
  std::vector<std::string> names = unwrapped_names(stored);
  for (const std::string_view prefix : {"vision_tower.", "model.vision_tower."}) {
    nest_tower(names, prefix);
  }
  std::vector<std::size_t> order(names.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return names[a] < names[b]; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::size_t a = order[i - 1];
    const std::size_t b = order[i];
    if (names[a] != names[b]) continue;
    const TensorPlan& one = plan.tensors[a];
    const TensorPlan& other = plan.tensors[b];
    if (one.name == other.name) {
      return make_error(ErrorCode::kCorruption, "tensor " + quote_name(one.name) + " comes twice");
    }
    return make_error(ErrorCode::kCorruption,
                      "tensors " + quote_name(one.name) + place_of(plan, one) + " and " +
                          quote_name(other.name) + place_of(plan, other) + " are both " +
                          quote_name(names[a]) +
                          " without the names of torch's wrappers; which of them is the model's "
                          "cannot be told");
  }
  for (std::size_t i = 0; i < names.size(); ++i) plan.tensors[i].name = std::move(names[i]);
  std::sort(plan.tensors.begin(), plan.tensors.end(),
            [](const TensorPlan& a, const TensorPlan& b) { return a.name < b.name; });
  return {};
}

}  // namespace evalcar::checkpoint
