#include "store/checkpoint/expert_names.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/tie_config.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kGateUp = ".experts.gate_up_proj";
constexpr std::string_view kDown = ".experts.down_proj";
/// Pieces of a plan that experts may make: several times what the largest model needs. A sparse
/// file states any size.
constexpr std::uint64_t kMostNewPieces = 200'000;

/// How the hub has the experts of a family.
enum class Form {
  kProjections,  ///< N.gate_proj.weight, N.up_proj.weight, N.down_proj.weight
  kNumbers,      ///< the same as N.w1.weight, N.w3.weight, N.w2.weight
  kTransposed,   ///< stacked, [experts, hidden, 2 · inner] and [experts, inner, hidden]
  kStacked,      ///< as 5.x has them, by other names
};

/// A name below the experts' module.
struct NamePair {
  std::string_view theirs;
  std::string_view ours;
};

struct Family {
  std::string_view model_type;
  Form form;
  std::string_view module = {};  ///< the hub's name of the module around the experts; empty: 5.x's
  std::array<NamePair, 3> below = {};  ///< what else is called otherwise in it
};

constexpr std::string_view kSparse = "block_sparse_moe";
constexpr std::array<NamePair, 3> kOfGranite = {{{"router.weight", "router.layer.weight"},
                                                 {"experts.gate_up_proj", "input_linear.weight"},
                                                 {"experts.down_proj", "output_linear.weight"}}};
constexpr std::array<Family, 24> kFamilies = {{
    {"deepseek_v2", Form::kProjections},
    {"deepseek_v3", Form::kProjections},
    {"dots1", Form::kProjections},
    {"ernie4_5_moe",
     Form::kProjections,
     {},
     {{{"gate.moe_statics.e_score_correction_bias", "moe_statics.e_score_correction_bias"}}}},
    {"flex_olmo", Form::kProjections},
    {"glm4_moe", Form::kProjections},
    {"glm4v_moe", Form::kProjections},
    {"granitemoe", Form::kStacked, {}, kOfGranite},
    {"granitemoehybrid", Form::kStacked, {}, kOfGranite},
    {"granitemoeshared", Form::kStacked, {}, kOfGranite},
    {"hunyuan_v1_moe", Form::kProjections},
    {"jamba", Form::kProjections},
    {"lfm2_moe", Form::kNumbers},
    {"minimax", Form::kNumbers, kSparse},
    {"mixtral", Form::kNumbers, kSparse},
    {"olmoe", Form::kProjections},
    {"phimoe", Form::kNumbers, kSparse, {{{"router.weight", "gate.weight"}}}},
    {"qwen2_moe", Form::kProjections},
    {"qwen3_moe", Form::kProjections},
    {"qwen3_next", Form::kProjections},
    {"qwen3_omni_moe", Form::kProjections},
    {"qwen3_omni_moe_thinker", Form::kProjections},
    {"qwen3_vl_moe", Form::kTransposed},
    {"qwen3_vl_moe_text", Form::kTransposed},
}};

class ModelTypeScan final : public JsonVisitor {
 public:
  const Family* family() const {
    const auto found = std::find_if(kFamilies.begin(), kFamilies.end(), [this](const Family& each) {
      return each.model_type == model_type_;
    });
    return found == kFamilies.end() ? nullptr : &*found;
  }

 private:
  std::string scalar(const JsonPath& path, const JsonScalar& value) override {
    if (path.size() == 1 && path[0] == "model_type" && value.kind == JsonScalar::Kind::kString) {
      model_type_ = value.text;
    }
    return {};
  }
  std::string open(const JsonPath&, bool) override { return {}; }
  std::string close(const JsonPath&) override { return {}; }

  std::string model_type_;
};

/// The two tensors of a layer, and the module in which its `experts` lies.
struct Fused {
  std::string module;
  std::size_t gate_up = 0;  ///< index into Plan::tensors
  std::size_t down = 0;
};

std::size_t index_of(const Plan& plan, std::string_view name) {
  const TensorPlan* const found = plan.find(name);
  return found == nullptr ? plan.tensors.size()
                          : static_cast<std::size_t>(found - plan.tensors.data());
}

bool is_as_in_modules(const TensorPlan& gate_up, const TensorPlan& down) {
  const std::vector<std::int64_t>& a = gate_up.shape;
  const std::vector<std::int64_t>& b = down.shape;
  return a.size() == 3 && b.size() == 3 && a[0] > 0 && b[1] > 0 && b[2] > 0 && a[0] == b[0] &&
         a[1] % 2 == 0 && a[1] / 2 == b[2] && a[2] == b[1];
}

std::vector<Fused> fused_of(const Plan& plan) {
  std::vector<Fused> found;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const std::string_view name = plan.tensors[i].name;
    if (!name.ends_with(kGateUp)) continue;
    std::string module(name.substr(0, name.size() - kGateUp.size()));
    const std::size_t down = index_of(plan, module + std::string(kDown));
    if (down == plan.tensors.size()) continue;
    if (!is_as_in_modules(plan.tensors[i], plan.tensors[down])) continue;
    found.push_back({std::move(module), i, down});
  }
  return found;
}

/// Adds to `parts` rows [first, end) of each expert as tensors of their own, with the names
/// PREFIX.N.NAME.
void split_rows(const TensorPlan& fused, std::int64_t first, std::int64_t end,
                const std::string& prefix, std::string_view name, std::vector<TensorPlan>& parts) {
  const std::size_t begin = parts.size();
  for (std::int64_t expert = 0; expert < fused.shape[0]; ++expert) {
    TensorPlan& part = parts.emplace_back();
    part.name = prefix + "." + std::to_string(expert) + "." + std::string(name);
    part.dtype = fused.dtype;
    part.shape = {end - first, fused.shape[2]};
  }
  for (const Piece& piece : fused.pieces) {
    const std::int64_t from = std::max(first, piece.start[1]);
    const std::int64_t to = std::min(end, piece.start[1] + piece.size[1]);
    if (from >= to) continue;
    for (std::int64_t i = 0; i < piece.size[0]; ++i) {
      const std::int64_t skipped =
          i * piece.stride_elements[0] + (from - piece.start[1]) * piece.stride_elements[1];
      parts[begin + static_cast<std::size_t>(piece.start[0] + i)].pieces.push_back(
          {.file = piece.file,
           .file_offset =
               piece.file_offset + static_cast<std::uint64_t>(skipped) * dtype_size(fused.dtype),
           .start = {from - first, piece.start[2]},
           .size = {to - from, piece.size[2]},
           .stride_elements = {piece.stride_elements[1], piece.stride_elements[2]}});
    }
  }
}

/// transformers 5 tells by each tensor's shape whether to exchange its dimensions: of equal ones it
/// takes what it finds as it is.
bool is_told_by_shape(const Plan& plan, const Fused& fused) {
  for (const std::size_t index : {fused.gate_up, fused.down}) {
    const std::vector<std::int64_t>& shape = plan.tensors[index].shape;
    if (shape[1] == shape[2]) return false;
  }
  return true;
}

void exchange_last_two(TensorPlan& tensor) {
  std::swap(tensor.shape[1], tensor.shape[2]);
  for (Piece& piece : tensor.pieces) {
    for (auto* const numbers : {&piece.start, &piece.size, &piece.stride_elements}) {
      std::swap((*numbers)[1], (*numbers)[2]);
    }
  }
}

/// The experts of one layer, one by one, added to `parts`.
void split(const Plan& plan, const Fused& fused, const std::string& module, Form form,
           std::vector<TensorPlan>& parts) {
  const bool numbered = form == Form::kNumbers;
  const TensorPlan& gate_up = plan.tensors[fused.gate_up];
  const TensorPlan& down = plan.tensors[fused.down];
  const std::int64_t inner = down.shape[2];
  const std::string prefix = module + ".experts";
  split_rows(gate_up, 0, inner, prefix, numbered ? "w1.weight" : "gate_proj.weight", parts);
  split_rows(gate_up, inner, 2 * inner, prefix, numbered ? "w3.weight" : "up_proj.weight", parts);
  split_rows(down, 0, down.shape[1], prefix, numbered ? "w2.weight" : "down_proj.weight", parts);
}

/// Whether split() makes more pieces than a model needs.
bool makes_too_many(const std::vector<TensorPlan>& tensors, const std::vector<Fused>& fused) {
  std::uint64_t pieces = 0;
  for (const Fused& layer : fused) {
    for (const std::size_t index : {layer.gate_up, layer.gate_up, layer.down}) {
      for (const Piece& piece : tensors[index].pieces) {
        pieces += static_cast<std::uint64_t>(piece.size[0]);
        if (pieces > kMostNewPieces) return true;
      }
    }
  }
  return false;
}

/// "model.layers.0.mlp" with the hub's name for its last component.
std::string module_on_hub(const std::string& module, const Family& family) {
  if (family.module.empty()) return module;
  const std::size_t dot = module.rfind('.');
  return module.substr(0, dot == std::string::npos ? 0 : dot + 1) + std::string(family.module);
}

/// The names of all tensors where those that lie in a module with experts have the hub's; they are
/// sorted as they were, so that a module's come together.
std::vector<std::string> names_on_hub(const Plan& plan, const std::vector<Fused>& fused,
                                      const Family& family) {
  std::vector<std::string> names;
  names.reserve(plan.tensors.size());
  for (const TensorPlan& tensor : plan.tensors) names.push_back(tensor.name);
  for (const Fused& layer : fused) {
    const std::string prefix = layer.module + ".";
    const std::string module = module_on_hub(layer.module, family);
    auto tensor = std::lower_bound(
        plan.tensors.begin(), plan.tensors.end(), prefix,
        [](const TensorPlan& each, const std::string& name) { return each.name < name; });
    for (; tensor != plan.tensors.end() && tensor->name.starts_with(prefix); ++tensor) {
      std::string_view rest = std::string_view(tensor->name).substr(prefix.size());
      for (const NamePair& pair : family.below) {
        if (rest == pair.theirs) rest = pair.ours;
      }
      names[static_cast<std::size_t>(tensor - plan.tensors.begin())] =
          module + "." + std::string(rest);
    }
  }
  return names;
}

bool has_twins(const std::vector<std::string>& names, const std::vector<TensorPlan>& parts,
               const std::set<std::size_t>& gone) {
  std::set<std::string_view> seen;
  for (const TensorPlan& part : parts) {
    if (!seen.insert(part.name).second) return true;
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!gone.contains(i) && !seen.insert(names[i]).second) return true;
  }
  return false;
}

}  // namespace

std::string_view fused_experts_of(const Plan& plan) {
  const auto fused = fused_of(plan);
  return fused.empty() ? std::string_view() : plan.tensors[fused[0].gate_up].name;
}

Status take_expert_names(Plan& plan, std::string_view config_text, const std::string& where) {
  const std::vector<Fused> fused = fused_of(plan);
  if (fused.empty()) return {};
  ModelTypeScan scan;
  EVALCAR_RETURN_IF_ERROR(scan_json(config_text, where, kMaxConfigDepth, scan));
  const Family* const family = scan.family();
  if (family == nullptr) return {};
  for (const Fused& layer : fused) {
    if (!plan.tensors[layer.gate_up].is_stored_as_is() ||
        !plan.tensors[layer.down].is_stored_as_is()) {
      return {};
    }
  }
  if (family->form == Form::kTransposed &&
      !std::all_of(fused.begin(), fused.end(),
                   [&plan](const Fused& layer) { return is_told_by_shape(plan, layer); })) {
    return {};
  }
  const bool splits = family->form == Form::kProjections || family->form == Form::kNumbers;
  if (splits && makes_too_many(plan.tensors, fused)) return {};
  std::vector<std::string> names = names_on_hub(plan, fused, *family);
  std::vector<TensorPlan> parts;
  std::set<std::size_t> gone;
  for (const Fused& layer : fused) {
    if (!splits) continue;
    split(plan, layer, module_on_hub(layer.module, *family), family->form, parts);
    gone.insert({layer.gate_up, layer.down});
  }
  if (has_twins(names, parts, gone)) return {};
  for (const Fused& layer : fused) {
    if (family->form != Form::kTransposed) continue;
    exchange_last_two(plan.tensors[layer.gate_up]);
    exchange_last_two(plan.tensors[layer.down]);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (gone.contains(i)) continue;
    plan.tensors[i].name = std::move(names[i]);
    parts.push_back(std::move(plan.tensors[i]));
  }
  plan.tensors = std::move(parts);
  std::sort(plan.tensors.begin(), plan.tensors.end(),
            [](const TensorPlan& a, const TensorPlan& b) { return a.name < b.name; });
  find_ties(plan);
  return {};
}

}  // namespace evalcar::checkpoint
