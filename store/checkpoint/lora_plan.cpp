#include "store/checkpoint/lora_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "store/checkpoint/convert.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/lora_names.h"
#include "store/checkpoint/low_rank.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/tensor_names.h"
#include "store/checkpoint/tied_names.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kConfigName = "adapter_config.json";

/// The two factors of one module's update.
struct Pair {
  std::optional<TensorPlan> a;
  std::optional<TensorPlan> b;
  bool embedding = false;
};

/// Whether config.json, or its text_config, says that the output head is the embedding.
class TieFinder final : public JsonVisitor {
 public:
  bool tied = false;

 private:
  std::string scalar(const JsonPath& path, const JsonScalar& value) override {
    const bool here = path.size() == 1 || (path.size() == 2 && path[0] == "text_config");
    if (here && path.back() == "tie_word_embeddings" && value.kind == JsonScalar::Kind::kBool) {
      tied = tied || value.boolean;
    }
    return {};
  }
  std::string open(const JsonPath&, bool) override { return {}; }
  std::string close(const JsonPath&) override { return {}; }
};

Result<bool> config_ties(const FileSystem& files, const Folder& base) {
  if (!base.has("config.json")) return false;
  const std::string path = join_path(base.path, "config.json");
  EVALCAR_ASSIGN_OR_RETURN(const auto file, open_inside(files, base.path, "config.json"));
  EVALCAR_ASSIGN_OR_RETURN(const std::string text, read_file(files, path, kMaxConfigBytes));
  TieFinder finder;
  constexpr std::size_t kMaxDepth = 64;
  EVALCAR_RETURN_IF_ERROR(scan_json(text, path, kMaxDepth, finder));
  return finder.tied;
}

/// Lays an adapter over the plan of its base.
class Overlay {
 public:
  Overlay(const Folder& adapter, const LoraConfig& config, Plan& plan)
      : where_(join_path(adapter.path, adapter_file(adapter))),
        config_(config),
        plan_(plan),
        names_(plan) {}

  Status run(std::vector<TensorPlan> tensors, bool config_ties) {
    EVALCAR_RETURN_IF_ERROR(sort_out(std::move(tensors)));
    EVALCAR_RETURN_IF_ERROR(choose_orientation());
    EVALCAR_RETURN_IF_ERROR(check_ties(config_ties));
    for (auto& [target, tensor] : replacements_) {
      EVALCAR_RETURN_IF_ERROR(replace(target, std::move(tensor)));
    }
    for (auto& [module, pair] : pairs_) EVALCAR_RETURN_IF_ERROR(update(module, std::move(pair)));
    for (TensorPlan& tensor : added_) plan_.tensors.push_back(std::move(tensor));
    EVALCAR_RETURN_IF_ERROR(settle_names(plan_));
    find_ties(plan_);
    return {};
  }

 private:
  Error error(ErrorCode code, const std::string& what) const {
    return make_error(code, where_ + ": " + what);
  }
  Error corrupt(const std::string& what) const { return error(ErrorCode::kCorruption, what); }

  Status sort_out(std::vector<TensorPlan> tensors) {
    for (TensorPlan& tensor : tensors) {
      if (is_extra_state(tensor.name)) {
        plan_.extra_states.push_back(std::move(tensor.name));
        continue;
      }
      auto name = parse_adapter_name(tensor.name);
      if (!name.has_value()) return error(name.error().code, name.error().message);
      const bool embedding =
          name->part == AdapterPart::kEmbeddingA || name->part == AdapterPart::kEmbeddingB;
      if (name->part == AdapterPart::kReplacement) {
        if (!replacements_.emplace(name->target, std::move(tensor)).second) {
          return corrupt("tensor " + quote_name(name->target) + " comes twice");
        }
        continue;
      }
      const auto [place, fresh] = pairs_.try_emplace(name->target);
      Pair& pair = place->second;
      const bool is_a = name->part == AdapterPart::kA || name->part == AdapterPart::kEmbeddingA;
      auto& slot = is_a ? pair.a : pair.b;
      if (slot || (!fresh && pair.embedding != embedding)) {
        return corrupt("the update of " + quote_name(name->target) + " comes twice");
      }
      pair.embedding = embedding;
      slot = std::move(tensor);
    }
    for (const auto& [module, pair] : pairs_) {
      if (!pair.a || !pair.b) {
        return corrupt("module " + quote_name(module) + " has no lora_" +
                       std::string(pair.a ? "B" : "A"));
      }
    }
    if (pairs_.empty() && replacements_.empty()) return corrupt("holds no tensor");
    return {};
  }

  Result<std::size_t> target_of(const std::string& module) {
    auto found = names_.find(module + ".weight");
    if (!found.has_value()) return error(found.error().code, found.error().message);
    if (*found) return **found;
    const bool head = is_output_head(module + ".weight");
    return error(head ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument,
                 "updates module " + quote_name(module) +
                     (head ? ", which the base model ties to its embedding: a merge would change "
                             "both"
                           : ", which the base model does not have; is it the right one?"));
  }

  /// A square weight tells nothing about its own orientation, the others of the adapter do.
  Status choose_orientation() {
    transposed_ = config_.fan_in_fan_out;
    for (const auto& [module, pair] : pairs_) {
      if (pair.embedding) continue;
      EVALCAR_ASSIGN_OR_RETURN(const std::size_t index, target_of(module));
      const std::vector<std::int64_t>& shape = plan_.tensors[index].shape;
      if (shape.size() != 2 || pair.a->shape.size() != 2 || pair.b->shape.size() != 2) continue;
      const bool plain = shape[0] == pair.b->shape[0] && shape[1] == pair.a->shape[1];
      const bool turned = shape[0] == pair.a->shape[1] && shape[1] == pair.b->shape[0];
      if (plain == turned) continue;
      (turned ? some_turned_ : some_plain_) = true;
    }
    return {};
  }

  Result<bool> is_transposed(const std::string& module, const TensorPlan& tensor,
                             const Pair& pair) const {
    if (pair.embedding) return true;  // nn.Embedding: [rows, dim], B·A is [dim, rows]
    if (tensor.shape.size() != 2 || pair.a->shape.size() != 2 || pair.b->shape.size() != 2) {
      return false;
    }
    const bool plain = tensor.shape[0] == pair.b->shape[0] && tensor.shape[1] == pair.a->shape[1];
    const bool turned = tensor.shape[0] == pair.a->shape[1] && tensor.shape[1] == pair.b->shape[0];
    if (plain != turned) return turned;
    if (transposed_ ? some_plain_ : some_turned_) {
      return error(ErrorCode::kUnsupported,
                   "the weight of " + quote_name(module) +
                       " is square, and fan_in_fan_out of adapter_config.json contradicts the "
                       "shapes of other modules: it cannot be told how the weight is stored");
    }
    return transposed_;
  }

  /// An update or a replacement of one of two tied tensors is two in a model, one in a merge.
  Status check_ties(bool config_ties) const {
    bool stored_head = false;
    for (const TensorPlan& tensor : plan_.tensors) {
      stored_head = stored_head || is_output_head(tensor.name);
    }
    const bool tied = config_ties || !stored_head;
    bool embedding = false;
    bool head = false;
    for (const auto& [target, tensor] : replacements_) {
      embedding = embedding || is_input_embedding(target);
      head = head || is_output_head(target);
    }
    const std::string why =
        ", which the base model ties to its output head: a merge would change both, and the "
        "adapter one";
    for (const auto& [module, pair] : pairs_) {
      const std::string weight = module + ".weight";
      if (tied && is_input_embedding(weight)) {
        return error(ErrorCode::kUnsupported, "updates " + quote_name(module) + why);
      }
      if (config_ties && is_output_head(weight)) {
        return error(ErrorCode::kUnsupported,
                     "updates " + quote_name(module) +
                         ", which the base model ties to its "
                         "embedding: a merge would change both, and the adapter one");
      }
    }
    if (tied && embedding != head) {
      return error(ErrorCode::kUnsupported,
                   std::string("replaces ") + (embedding ? "the embedding" : "the output head") +
                       " alone, but the base model ties the two: the result is a model with two "
                       "tensors, of which one is not in the adapter");
    }
    return {};
  }

  Status replace(const std::string& target, TensorPlan tensor) {
    EVALCAR_ASSIGN_OR_RETURN(const std::optional<std::size_t> found, names_.find(target));
    if (!found) {
      const std::size_t dot = target.rfind('.');
      const bool saved = dot != std::string::npos && config_.saves(target.substr(0, dot));
      const bool new_head = is_output_head(target);  // beside its embedding: check_ties
      if (!saved && !new_head) {
        return error(ErrorCode::kInvalidArgument,
                     "replaces tensor " + quote_name(target) +
                         ", which the base model does not have; is it the right one?");
      }
      tensor.name = target;
      added_.push_back(std::move(tensor));
      return {};
    }
    TensorPlan& old = plan_.tensors[*found];
    if (!touched_.insert(*found).second) {
      return corrupt("tensor " + quote_name(old.name) + " is replaced twice");
    }
    if (tensor.shape != old.shape) {
      return error(ErrorCode::kInvalidArgument,
                   "replaces tensor " + quote_name(target) + " by one of shape " +
                       shape_text(tensor.shape) + ", the base model's is " + shape_text(old.shape) +
                       " (a resized vocabulary? give the base model that was trained)");
    }
    if (tensor.dtype != old.dtype) {
      if (!is_convertible(tensor.dtype) || !is_convertible(old.dtype)) {
        return error(ErrorCode::kUnsupported, "replaces tensor " + quote_name(target) + " of " +
                                                  std::string(dtype_name(old.dtype)) +
                                                  " by one of " +
                                                  std::string(dtype_name(tensor.dtype)));
      }
      old.stored_dtype = tensor.dtype;
    }
    old.pieces = std::move(tensor.pieces);
    return {};
  }

  Status update(const std::string& module, Pair pair) {
    EVALCAR_ASSIGN_OR_RETURN(const std::size_t index, target_of(module));
    TensorPlan& tensor = plan_.tensors[index];
    if (tensor.update != nullptr) {
      return corrupt("tensor " + quote_name(tensor.name) + " is updated twice");
    }
    if (!config_.targets(module)) {
      return corrupt("updates module " + quote_name(module) +
                     ", which adapter_config.json does not target: they do not belong together");
    }
    const std::int64_t r = config_.rank_of(module);
    if (pair.a->shape.empty() || pair.a->shape[0] != r) {
      return corrupt("lora_A of " + quote_name(module) + " has shape " + shape_text(pair.a->shape) +
                     ", but its rank in adapter_config.json is " + std::to_string(r));
    }
    EVALCAR_ASSIGN_OR_RETURN(const bool transposed, is_transposed(module, tensor, pair));
    LowRankUpdate update{std::move(*pair.a), std::move(*pair.b), config_.scale_of(module),
                         transposed, pair.embedding};
    if (const std::string why = low_rank_mismatch(tensor, update); !why.empty()) {
      return corrupt("the update of module " + quote_name(module) + ": " + why);
    }
    if (is_tied(index)) {
      return error(ErrorCode::kUnsupported, "updates tensor " + quote_name(tensor.name) +
                                                ", which the base model ties to another one");
    }
    tensor.update = std::make_shared<const LowRankUpdate>(std::move(update));
    return {};
  }

  bool is_tied(std::size_t index) const {
    return plan_.tensors[index].tied_to.has_value() ||
           std::any_of(plan_.tensors.begin(), plan_.tensors.end(),
                       [&](const TensorPlan& other) { return other.tied_to == index; });
  }

  std::string where_;
  const LoraConfig& config_;
  Plan& plan_;
  BaseNames names_;
  std::map<std::string, Pair> pairs_;               // by module
  std::map<std::string, TensorPlan> replacements_;  // by tensor
  std::vector<TensorPlan> added_;
  std::set<std::size_t> touched_;
  bool transposed_ = false;
  bool some_plain_ = false;
  bool some_turned_ = false;
};

}  // namespace

std::string adapter_file(const Folder& folder) {
  for (const char* const name : {"adapter_model.safetensors", "adapter_model.bin"}) {
    if (folder.has(name)) return name;
  }
  return {};
}

Result<LoraConfig> read_lora_config(const FileSystem& files, const Folder& folder) {
  const std::string path = join_path(folder.path, std::string(kConfigName));
  EVALCAR_ASSIGN_OR_RETURN(const auto file,
                           open_inside(files, folder.path, std::string(kConfigName)));
  EVALCAR_RETURN_IF_ERROR(check_json_object(files, path, kMaxAdapterConfigBytes));
  EVALCAR_ASSIGN_OR_RETURN(const std::string text, read_file(files, path, kMaxAdapterConfigBytes));
  return parse_lora_config(text, path);
}

Status add_adapter(const FileSystem& files, const Folder& folder, Plan& plan) {
  const std::string name = adapter_file(folder);
  if (name.empty()) {
    return make_error(ErrorCode::kUnavailable,
                      join_path(folder.path, "adapter_model.safetensors") + ": is missing");
  }
  return name.ends_with(".bin") ? add_torch_file(files, folder, name, plan)
                                : add_safetensors_file(files, folder, name, plan);
}

Result<Plan> plan_lora(const FileSystem& files, const Folder& adapter, const Folder& base) {
  EVALCAR_ASSIGN_OR_RETURN(const LoraConfig config, read_lora_config(files, adapter));
  auto base_plan = plan_hugging_face(files, base);
  if (!base_plan.has_value()) {
    return make_error(base_plan.error().code,
                      "the base model of " + adapter.path + ": " + base_plan.error().message);
  }
  Plan plan = std::move(base_plan).value();
  plan.layout = Layout::kLoraAdapter;
  EVALCAR_ASSIGN_OR_RETURN(const bool ties, config_ties(files, base));

  Plan own;  // its pieces count the base's files too
  own.files = plan.files;
  EVALCAR_RETURN_IF_ERROR(add_adapter(files, adapter, own));
  plan.files = std::move(own.files);
  plan.records.insert(plan.records.end(), own.records.begin(), own.records.end());
  EVALCAR_RETURN_IF_ERROR(Overlay(adapter, config, plan).run(std::move(own.tensors), ties));
  return plan;
}

}  // namespace evalcar::checkpoint
