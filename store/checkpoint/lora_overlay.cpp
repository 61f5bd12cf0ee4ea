#include "store/checkpoint/lora_overlay.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "store/checkpoint/lora_names.h"
#include "store/checkpoint/lora_orientation.h"
#include "store/checkpoint/lora_replacement.h"
#include "store/checkpoint/low_rank.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/tensor_names.h"
#include "store/checkpoint/tied_names.h"

namespace evalcar::checkpoint {
namespace {

/// The two factors of one module's update.
struct Pair {
  std::optional<TensorPlan> a;
  std::optional<TensorPlan> b;
  bool embedding = false;
};

/// Lays an adapter over the plan of its base.
class Overlay {
 public:
  Overlay(const FileSystem& files, std::string where, const LoraConfig& config, Plan& plan)
      : files_(files),
        where_(std::move(where)),
        config_(config),
        plan_(plan),
        names_(plan),
        orientation_(config.fan_in_fan_out) {}

  Status run(std::vector<TensorPlan> tensors, const BaseTies& ties) {
    EVALCAR_RETURN_IF_ERROR(sort_out(std::move(tensors)));
    EVALCAR_RETURN_IF_ERROR(settle_ties(ties));
    EVALCAR_RETURN_IF_ERROR(see_orientations());
    for (auto& [target, tensor] : replacements_) {
      EVALCAR_RETURN_IF_ERROR(replace(target, std::move(tensor)));
    }
    for (const bool of_head : {false, true}) {  // in the order of the modules: the head is the last
      for (auto& [module, pair] : pairs_) {
        if (is_output_head(module + ".weight") != of_head) continue;
        EVALCAR_RETURN_IF_ERROR(update(module, std::move(pair)));
      }
    }
    keep_bias();
    for (TensorPlan& tensor : added_) plan_.tensors.push_back(std::move(tensor));
    EVALCAR_RETURN_IF_ERROR(settle_names(plan_));
    find_ties(plan_);
    plan_.gives_up_tie = embedding_is_own_ || head_is_own_;
    return {};
  }

 private:
  Error error(ErrorCode code, const std::string& what) const {
    return make_error(code, where_ + ": " + what);
  }
  Error corrupt(const std::string& what) const { return error(ErrorCode::kCorruption, what); }
  /// What is wrong with it, told as of the adapter.
  Status of_adapter(Status status) const {
    if (status.has_value()) return status;
    return error(status.error().code, status.error().message);
  }

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
      if (name->part == AdapterPart::kReplaced) continue;
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
    if (is_tied_head(module)) return tied_->embedding;
    return error(ErrorCode::kInvalidArgument,
                 "updates module " + quote_name(module) +
                     ", which the base model does not have; is it the right one?");
  }

  /// Whether the module is the head that the model ties to its embedding and the files do not hold:
  /// by its class; where that is not known, the only one that is called like a head.
  bool is_tied_head(const std::string& module) {
    const std::string weight = module + ".weight";
    if (!tied_ || tied_->head || !is_output_head(weight)) return false;
    const auto& known = tied_->of_class;  // a class that has no head may be trained with one
    if (known && !known->weight.empty()) return shared_name(weight) == shared_name(known->weight);
    if (tied_head_.empty()) tied_head_ = module;
    return tied_head_ == module;
  }

  Status see_orientations() {
    for (const auto& [module, pair] : pairs_) {
      if (pair.embedding) continue;
      EVALCAR_ASSIGN_OR_RETURN(const std::size_t index, target_of(module));
      orientation_.see(plan_.tensors[index].shape, pair.a->shape, pair.b->shape);
    }
    return {};
  }

  Result<bool> is_transposed(const std::string& module, const TensorPlan& tensor,
                             const Pair& pair) const {
    if (pair.embedding) return true;  // nn.Embedding: [rows, dim], B·A is [dim, rows]
    const auto transposed = orientation_.is_transposed(tensor.shape, pair.a->shape, pair.b->shape);
    if (transposed.has_value()) return *transposed;
    return error(ErrorCode::kUnsupported,
                 "the weight of " + quote_name(module) +
                     " is square, and fan_in_fan_out of adapter_config.json contradicts the "
                     "shapes of other modules: it cannot be told how the weight is stored");
  }

  static bool may_be_tied(const std::string& weight) {
    return is_input_embedding(weight) || is_output_head(weight);
  }

  /// Finds the parameter that embedding and head share in a model, if they do, and has what is
  /// replaced of it replaced wherever PEFT would (lora_ties.h).
  Status settle_ties(const BaseTies& ties) {
    EVALCAR_RETURN_IF_ERROR(check_untold_ties(ties));
    std::map<std::string, TensorPlan>::iterator embedding = replacements_.end();
    std::map<std::string, TensorPlan>::iterator head = replacements_.end();
    for (auto each = replacements_.begin(); each != replacements_.end(); ++each) {
      if (is_input_embedding(each->first)) embedding = each;
      if (is_output_head(each->first)) head = each;
    }
    const bool replaced = embedding != replacements_.end() || head != replacements_.end();
    const bool updated = std::ranges::any_of(
        pairs_, [](const auto& each) { return may_be_tied(each.first + ".weight"); });
    if (!replaced && !updated) return {};
    auto found = find_tied_weights(plan_, ties);
    if (!found.has_value()) return error(found.error().code, found.error().message);
    tied_ = *found;
    if (!tied_) return {};
    const bool both = embedding != replacements_.end() && head != replacements_.end();
    embedding_is_own_ = embedding != replacements_.end() && is_saved(embedding->first);
    head_is_own_ = head != replacements_.end() && is_saved(head->first);
    // What is one in PEFT's model has to be one in the files, too.
    if (tied_->head && !both && !head_is_own_ && !embedding_is_own_) {
      EVALCAR_RETURN_IF_ERROR(
          of_adapter(check_equal(files_, plan_, tied_->embedding, *tied_->head)));
    }
    if (!replaced || both || head_is_own_) return {};
    if (embedding_is_own_) return keep_head(ties.architecture);
    // The shared parameter itself.
    const TensorPlan tensor =
        embedding != replacements_.end() ? embedding->second : std::move(head->second);
    if (head != replacements_.end()) replacements_.erase(head);
    replacements_.insert_or_assign(plan_.tensors[tied_->embedding].name, tensor);
    if (embedding != replacements_.end() &&
        embedding->first != plan_.tensors[tied_->embedding].name) {
      replacements_.erase(embedding);
    }
    if (tied_->head) replacements_.insert_or_assign(plan_.tensors[*tied_->head].name, tensor);
    return {};
  }

  Status check_untold_ties(const BaseTies& ties) const {
    const auto check = [&](const std::string& weight, bool is_copy) -> Status {
      const std::string why = untold_ties(plan_, ties, weight, is_copy);
      if (why.empty()) return {};
      return error(ErrorCode::kUnsupported, "changes " + quote_name(weight) + why +
                                                "; merge it with peft (merge_and_unload)");
    };
    for (const auto& [weight, tensor] : replacements_) {
      EVALCAR_RETURN_IF_ERROR(check(weight, is_saved(weight)));
    }
    for (const auto& [module, pair] : pairs_) {
      EVALCAR_RETURN_IF_ERROR(check(module + ".weight", false));
    }
    return {};
  }

  /// The embedding becomes another, the head stays what the embedding was.
  Status keep_head(const std::string& architecture) {
    if (tied_->head) return {};
    if (!tied_->of_class) {
      return error(ErrorCode::kUnsupported,
                   "replaces the embedding alone, and it cannot be told what the output head is "
                   "called that the base model (of class " +
                       quote_name(architecture) +
                       ") ties to it; merge it with peft (merge_and_unload)");
    }
    const std::string& name = tied_->of_class->weight;
    if (!name.empty()) add_copy(plan_.tensors[tied_->embedding], name);
    return {};
  }

  /// Where the tie is given up, a bias that was part of it stays the one that it shared.
  void keep_bias() {
    if (!tied_ || !tied_->of_class || !(embedding_is_own_ || head_is_own_)) return;
    const std::string& name = tied_->of_class->bias;
    const auto is_it = [&](const TensorPlan& tensor) { return tensor.name == name; };
    if (name.empty() || std::ranges::any_of(plan_.tensors, is_it) ||
        std::ranges::any_of(added_, is_it)) {
      return;
    }
    const TensorPlan* const source = plan_.find(tied_->of_class->bias_source);
    if (source != nullptr) add_copy(*source, name);
  }

  void add_copy(TensorPlan tensor, const std::string& name) {
    tensor.name = name;
    tensor.tied_to.reset();
    added_.push_back(std::move(tensor));
  }

  /// Whether PEFT keeps a copy of this module.
  bool is_saved(const std::string& weight) const {
    const std::size_t dot = weight.rfind('.');
    return dot != std::string::npos && config_.saves(weight.substr(0, dot));
  }

  /// A bias that the base's files have under its other name. True: it was one, and is replaced.
  Result<bool> replace_shared_bias(const std::string& target, const TensorPlan& tensor) {
    const std::string other = shared_bias_of(target);
    if (other.empty()) return false;
    EVALCAR_ASSIGN_OR_RETURN(const std::optional<std::size_t> found, names_.find(other));
    if (!found) return false;
    TensorPlan& stored = plan_.tensors[*found];
    TensorPlan bias = stored;
    EVALCAR_RETURN_IF_ERROR(of_adapter(put_in_place(bias, target, tensor)));
    if (!is_saved(target) && !replacements_.contains(other)) {
      EVALCAR_RETURN_IF_ERROR(of_adapter(put_in_place(stored, target, tensor)));
    }
    add_copy(std::move(bias), target);
    return true;
  }

  Status replace(const std::string& target, TensorPlan tensor) {
    EVALCAR_ASSIGN_OR_RETURN(const std::optional<std::size_t> found, names_.find(target));
    if (!found) {
      EVALCAR_ASSIGN_OR_RETURN(const bool is_bias, replace_shared_bias(target, tensor));
      if (is_bias) return {};
      const bool new_head = tied_ && is_output_head(target);
      EVALCAR_RETURN_IF_ERROR(of_adapter(check_is_new(names_, target)));
      if (!is_saved(target) && !new_head) {
        return error(ErrorCode::kInvalidArgument,
                     "replaces tensor " + quote_name(target) +
                         ", which the base model does not have; is it the right one?");
      }
      if (new_head) {
        TensorPlan head = plan_.tensors[tied_->embedding];
        EVALCAR_RETURN_IF_ERROR(of_adapter(put_in_place(head, target, std::move(tensor))));
        tensor = std::move(head);
        tensor.tied_to.reset();
      }
      tensor.name = target;
      added_.push_back(std::move(tensor));
      return {};
    }
    if (!touched_.insert(*found).second) {
      return corrupt("tensor " + quote_name(plan_.tensors[*found].name) + " is replaced twice");
    }
    return of_adapter(put_in_place(plan_.tensors[*found], target, std::move(tensor)));
  }

  /// The tensors that are the parameter which an update of this module changes.
  Result<std::vector<TensorPlan*>> changed_by(const std::string& module) {
    EVALCAR_ASSIGN_OR_RETURN(const std::size_t index, target_of(module));
    const std::string weight = module + ".weight";
    if (!tied_ || !may_be_tied(weight)) {
      if (is_tied(index)) {
        return error(ErrorCode::kUnsupported, "updates tensor " +
                                                  quote_name(plan_.tensors[index].name) +
                                                  ", which the base model ties to another one");
      }
      return std::vector<TensorPlan*>{&plan_.tensors[index]};
    }
    if (is_output_head(weight) ? head_is_own_ : embedding_is_own_) {
      return corrupt("both replaces and updates " + quote_name(module));
    }
    std::vector<TensorPlan*> shared;
    if (!embedding_is_own_) shared.push_back(&plan_.tensors[tied_->embedding]);
    if (tied_->head && !head_is_own_) shared.push_back(&plan_.tensors[*tied_->head]);
    for (TensorPlan& tensor : added_) {
      if (is_output_head(tensor.name) && !head_is_own_) shared.push_back(&tensor);
    }
    return shared;
  }

  Status update(const std::string& module, Pair pair) {
    EVALCAR_ASSIGN_OR_RETURN(const std::vector<TensorPlan*> tensors, changed_by(module));
    const bool may_share = tied_ && may_be_tied(module + ".weight");
    const bool targeted = config_.targets(module) || (may_share && config_.ties_adapters);
    if (!targeted) {
      return corrupt("updates module " + quote_name(module) +
                     ", which adapter_config.json does not target: they do not belong together");
    }
    if (may_share) {  // it has an update of each of the two modules, and no more
      bool& updated = is_output_head(module + ".weight") ? head_updated_ : embedding_updated_;
      if (std::exchange(updated, true)) {
        return corrupt("module " + quote_name(module) +
                       " updates a tied weight that another one "
                       "of its kind has updated");
      }
    }
    const std::int64_t r = config_.rank_of(module);
    if (pair.a->shape.empty() || pair.a->shape[0] != r) {
      return corrupt("lora_A of " + quote_name(module) + " has shape " + shape_text(pair.a->shape) +
                     ", but its rank in adapter_config.json is " + std::to_string(r));
    }
    for (TensorPlan* const tensor : tensors) {
      if (tensor->update != nullptr && !may_share) {
        return corrupt("tensor " + quote_name(tensor->name) + " is updated twice");
      }
      EVALCAR_ASSIGN_OR_RETURN(const bool transposed, is_transposed(module, *tensor, pair));
      LowRankUpdate update{*pair.a,    *pair.b,        config_.scale_of(module),
                           transposed, pair.embedding, tensor->update};
      if (const std::string why = low_rank_mismatch(*tensor, update); !why.empty()) {
        return corrupt("the update of module " + quote_name(module) + ": " + why);
      }
      tensor->update = std::make_shared<const LowRankUpdate>(std::move(update));
    }
    return {};
  }

  bool is_tied(std::size_t index) const {
    return plan_.tensors[index].tied_to.has_value() ||
           std::any_of(plan_.tensors.begin(), plan_.tensors.end(),
                       [&](const TensorPlan& other) { return other.tied_to == index; });
  }

  const FileSystem& files_;
  std::string where_;
  const LoraConfig& config_;
  Plan& plan_;
  BaseNames names_;
  std::map<std::string, Pair> pairs_;               // by module
  std::map<std::string, TensorPlan> replacements_;  // by tensor
  std::vector<TensorPlan> added_;
  std::set<std::size_t> touched_;
  std::optional<TiedWeights> tied_;
  bool embedding_is_own_ = false;  ///< of a tied pair: a copy is trained (modules_to_save)
  bool head_is_own_ = false;
  bool embedding_updated_ = false;  ///< of a tied pair, by its own module
  bool head_updated_ = false;
  std::string tied_head_;  ///< the module that was taken for it; "": none so far
  LoraOrientation orientation_;
};

}  // namespace

Status lay_adapter_over(const FileSystem& files, const std::string& where, const LoraConfig& config,
                        std::vector<TensorPlan> adapter, const BaseTies& ties, Plan& base) {
  return Overlay(files, where, config, base).run(std::move(adapter), ties);
}

}  // namespace evalcar::checkpoint
