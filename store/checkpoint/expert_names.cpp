#include "store/checkpoint/expert_names.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "store/checkpoint/expert_families.h"
#include "store/checkpoint/folder.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/plan_budget.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kExperts = ".experts.";
constexpr std::string_view kGateUp = ".experts.gate_up_proj";
constexpr std::string_view kDown = ".experts.down_proj";
constexpr std::string_view kDenseModule = "mlp";

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

/// "model.layers.0.mlp" with the hub's name for its last component.
std::string module_on_hub(const std::string& module, const ExpertFamily& family) {
  if (family.module.empty()) return module;
  const std::size_t dot = module.rfind('.');
  return module.substr(0, dot == std::string::npos ? 0 : dot + 1) + std::string(family.module);
}

/// Of an expert's three matrices.
struct Matrix {
  std::size_t tensor;  ///< index into Plan::tensors
  std::int64_t first;  ///< of its rows there
  std::int64_t end;
  std::string_view name;
};

std::array<Matrix, 3> matrices_of(const Plan& plan, const Fused& fused, ExpertForm form) {
  const bool numbered = form == ExpertForm::kNumbers;
  const std::int64_t inner = plan.tensors[fused.down].shape[2];
  const std::int64_t hidden = plan.tensors[fused.down].shape[1];
  return {{{fused.gate_up, 0, inner, numbered ? "w1.weight" : "gate_proj.weight"},
           {fused.gate_up, inner, 2 * inner, numbered ? "w3.weight" : "up_proj.weight"},
           {fused.down, 0, hidden, numbered ? "w2.weight" : "down_proj.weight"}}};
}

TensorPlan part_of(const TensorPlan& fused, const Matrix& matrix, const std::string& prefix,
                   std::int64_t expert) {
  TensorPlan part;
  part.name = prefix + std::to_string(expert) + "." + std::string(matrix.name);
  part.dtype = fused.dtype;
  part.stored_dtype = fused.stored_dtype;
  part.shape = {matrix.end - matrix.first, fused.shape[2]};
  return part;
}

/// Adds to `parts` each expert's matrix as a tensor of its own.
void split(const TensorPlan& fused, const Matrix& matrix, const std::string& prefix,
           std::vector<TensorPlan>& parts) {
  const std::size_t begin = parts.size();
  for (std::int64_t expert = 0; expert < fused.shape[0]; ++expert) {
    parts.push_back(part_of(fused, matrix, prefix, expert));
  }
  const std::uint64_t element = dtype_size(fused.stored_dtype.value_or(fused.dtype));
  for (const Piece& piece : fused.pieces) {
    const std::int64_t from = std::max(matrix.first, piece.start[1]);
    const std::int64_t to = std::min(matrix.end, piece.start[1] + piece.size[1]);
    if (from >= to) continue;
    for (std::int64_t i = 0; i < piece.size[0]; ++i) {
      const std::int64_t skipped =
          i * piece.stride_elements[0] + (from - piece.start[1]) * piece.stride_elements[1];
      parts[begin + static_cast<std::size_t>(piece.start[0] + i)].pieces.push_back(
          {.file = piece.file,
           .file_offset = piece.file_offset + static_cast<std::uint64_t>(skipped) * element,
           .start = {from - matrix.first, piece.start[2]},
           .size = {to - from, piece.size[2]},
           .stride_elements = {piece.stride_elements[1], piece.stride_elements[2]}});
    }
  }
}

/// Counts what split() makes.
void take(const TensorPlan& fused, const Matrix& matrix, const std::string& prefix,
          PlanBudget& budget) {
  const TensorPlan part = part_of(fused, matrix, prefix, fused.shape[0] - 1);
  Piece row;
  row.size = part.shape;
  for (std::int64_t i = 0; i < fused.shape[0] && !budget.is_spent(); ++i) budget.take(part);
  for (const Piece& piece : fused.pieces) {
    if (piece.start[1] >= matrix.end || piece.start[1] + piece.size[1] <= matrix.first) continue;
    for (std::int64_t i = 0; i < piece.size[0] && !budget.is_spent(); ++i) budget.take(row);
  }
}

/// What the experts of all layers take; is_spent() where it is too much.
PlanBudget budget_of(const Plan& plan, const std::vector<Fused>& fused,
                     const ExpertFamily& family) {
  PlanBudget budget;
  for (const PlanFile& file : plan.files) budget.allow_parts(file.identity.size_bytes);
  for (const Fused& layer : fused) {
    const std::string prefix = module_on_hub(layer.module, family) + std::string(kExperts);
    for (const Matrix& matrix : matrices_of(plan, layer, family.form)) {
      take(plan.tensors[matrix.tensor], matrix, prefix, budget);
    }
  }
  return budget;
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

/// New names by the index of the tensor: of what has another one on the hub beside the experts.
std::map<std::size_t, std::string> names_on_hub(const Plan& plan, const std::vector<Fused>& fused,
                                                const ExpertFamily& family) {
  std::map<std::size_t, std::string> names;
  for (const Fused& layer : fused) {
    const std::string module = module_on_hub(layer.module, family);
    for (const ExpertNamePair& pair : family.below) {
      if (pair.theirs.empty()) continue;
      const std::size_t found = index_of(plan, layer.module + "." + std::string(pair.theirs));
      if (found != plan.tensors.size()) names[found] = module + "." + std::string(pair.ours);
    }
  }
  return names;
}

/// The tensors from the first on whose name does not come before `prefix`.
std::span<const TensorPlan> tensors_from(const Plan& plan, const std::string& prefix) {
  const auto first = std::lower_bound(
      plan.tensors.begin(), plan.tensors.end(), prefix,
      [](const TensorPlan& tensor, const std::string& name) { return tensor.name < name; });
  return {first, plan.tensors.end()};
}

/// Where else something lies in the module of the experts (scales of a quantised type), what it is
/// to be called cannot be told.
bool has_more_below(const Plan& plan, const Fused& fused) {
  const std::string prefix = fused.module + std::string(kExperts);
  const auto tensors = tensors_from(plan, prefix);
  return tensors.size() > 2 && tensors[2].name.starts_with(prefix);
}

/// Whether something has a name already that is to be given.
bool is_taken(const Plan& plan, const Fused& fused, const ExpertFamily& family) {
  const std::string module = module_on_hub(fused.module, family) + ".";
  if (!family.module.empty()) {
    const auto tensors = tensors_from(plan, module);
    return !tensors.empty() && tensors[0].name.starts_with(module);
  }
  return std::any_of(family.below.begin(), family.below.end(), [&](const ExpertNamePair& pair) {
    return !pair.ours.empty() && plan.find(module + std::string(pair.ours)) != nullptr;
  });
}

/// Whether the pieces say all of a tensor's values, but for a conversion.
bool has_own_bytes(const TensorPlan& tensor) {
  return tensor.update == nullptr && tensor.mean_of == nullptr;
}

/// Whether the names of the hub can be given to all of them.
bool can_be_named(const Plan& plan, const std::vector<Fused>& fused, const ExpertFamily& family) {
  return std::all_of(fused.begin(), fused.end(), [&](const Fused& layer) {
    const std::size_t dot = layer.module.rfind('.');
    const std::string_view own = std::string_view(layer.module).substr(dot + 1);
    if (!family.module.empty() && (dot == std::string::npos || own != kDenseModule)) return false;
    if (!has_own_bytes(plan.tensors[layer.gate_up])) return false;
    if (!has_own_bytes(plan.tensors[layer.down])) return false;
    if (family.form == ExpertForm::kTransposed && !is_told_by_shape(plan, layer)) return false;
    return !has_more_below(plan, layer) && !is_taken(plan, layer, family);
  });
}

}  // namespace

std::string_view fused_experts_of(const Plan& plan) {
  const auto fused = fused_of(plan);
  return fused.empty() ? std::string_view() : plan.tensors[fused[0].gate_up].name;
}

Status take_expert_names(Plan& plan, std::string_view config_text, const std::string& where) {
  const std::vector<Fused> fused = fused_of(plan);
  if (fused.empty()) return {};
  EVALCAR_ASSIGN_OR_RETURN(const ExpertFamily* const family,
                           find_expert_family(config_text, where));
  if (family == nullptr) return {};
  if (!can_be_named(plan, fused, *family)) return {};
  std::map<std::size_t, std::string> names = names_on_hub(plan, fused, *family);
  std::vector<TensorPlan> parts;
  std::vector<bool> is_split(plan.tensors.size());
  if (family->form == ExpertForm::kProjections || family->form == ExpertForm::kNumbers) {
    const PlanBudget budget = budget_of(plan, fused, *family);
    if (budget.is_spent() && budget.is_capped()) return {};
    if (budget.is_spent()) {
      const TensorPlan& tensor = plan.tensors[fused[0].gate_up];
      return make_error(ErrorCode::kCorruption,
                        "tensor " + quote_name(tensor.name) + " " + shape_text(tensor.shape) +
                            ": an expert of its layer, or of another one, " + PlanBudget::kTooMuch);
    }
    for (const Fused& layer : fused) {
      const std::string prefix = module_on_hub(layer.module, *family) + std::string(kExperts);
      for (const Matrix& matrix : matrices_of(plan, layer, family->form)) {
        split(plan.tensors[matrix.tensor], matrix, prefix, parts);
        is_split[matrix.tensor] = true;
      }
    }
  }
  for (const Fused& layer : fused) {
    if (family->form != ExpertForm::kTransposed) continue;
    exchange_last_two(plan.tensors[layer.gate_up]);
    exchange_last_two(plan.tensors[layer.down]);
  }
  for (auto& [index, name] : names) plan.tensors[index].name = std::move(name);
  for (std::size_t i = 0; i < is_split.size(); ++i) {
    if (!is_split[i]) parts.push_back(std::move(plan.tensors[i]));
  }
  plan.tensors = std::move(parts);
  std::sort(plan.tensors.begin(), plan.tensors.end(),
            [](const TensorPlan& a, const TensorPlan& b) { return a.name < b.name; });
  find_ties(plan);
  return {};
}

}  // namespace evalcar::checkpoint
