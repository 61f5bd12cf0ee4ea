#include "store/checkpoint/lora_ties.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/tie_config.h"
#include "store/checkpoint/tied_copies.h"
#include "store/checkpoint/tied_heads.h"

namespace evalcar::checkpoint {
namespace {

/// Absent where it is not known.
std::optional<OutputHead> head_of(const BaseTies& ties, const std::string& embedding) {
  auto head = output_head_of(ties.architecture, embedding);
  if (head && head->weight.empty() && ties.has_head) head.reset();
  return head;
}

constexpr const char* kUntold =
    ", and it cannot be told which other tensors of the base model are tied to it";

/// Whether an update of the one is made to the other, too.
bool is_followed(std::string_view weight) {
  return is_output_head(weight) || is_input_embedding(weight);
}

/// By the table of classes.
std::string untold_listed_ties(const Plan& base, const BaseTies& ties, const std::string& weight,
                               bool is_copy) {
  std::vector<KnownTie> rows = listed_ties_of(ties.architecture, ties.model_type).ties;
  std::erase_if(rows, [](const KnownTie& tie) { return tie.one.ends_with(".bias"); });
  std::set<std::string_view> group = {weight};
  for (std::size_t before = 0; before < group.size();) {
    before = group.size();
    for (const KnownTie& tie : rows) {
      if (group.contains(tie.one) || group.contains(tie.other)) group.insert({tie.one, tie.other});
    }
  }
  std::vector<std::string_view> others;  // of the files
  for (const std::string_view name : group) {
    if (name != weight && base.find(name) != nullptr) others.push_back(name);
  }
  const bool all_followed = is_followed(weight) && std::ranges::all_of(others, is_followed);
  if (others.size() > 1 || (!others.empty() && !all_followed)) return kUntold;
  const bool is_lost =
      is_copy && std::ranges::any_of(rows, [&](const KnownTie& tie) {
        if (!group.contains(tie.one)) return false;
        return !tie.is_head || (others.empty() && tie.other == weight && !is_output_head(tie.one));
      });
  return is_lost ? kUntold : "";
}

Error differ(const TensorPlan& embedding, const TensorPlan& head) {
  return make_error(ErrorCode::kUnsupported,
                    "changes one of " + quote_name(embedding.name) + " and " +
                        quote_name(head.name) +
                        ", which the base model's configuration ties, but which differ");
}

}  // namespace

Result<BaseTies> read_base_ties(const FileSystem& files, const Folder& base, const Plan& plan) {
  if (!base.has("config.json")) return BaseTies{};
  const std::string path = join_path(base.path, "config.json");
  EVALCAR_ASSIGN_OR_RETURN(std::string text,
                           read_inside(files, base, "config.json", kMaxConfigBytes));
  replace_non_finite(text);
  EVALCAR_ASSIGN_OR_RETURN(const TieConfig config, TieConfig::parse(text, path));
  BaseTies ties;
  ties.architecture = config.architecture();
  ties.model_type = config.model_type();
  // Of the head; else of the embedding; where it has no such tensor, of the whole model.
  std::string_view tensor;
  for (bool (*is_it)(std::string_view) : {is_output_head, may_be_tied_embedding}) {
    const auto found = std::ranges::find_if(
        plan.tensors, [&](const TensorPlan& each) { return is_it(each.name); });
    if (tensor.empty() && found != plan.tensors.end()) tensor = found->name;
  }
  const TieFlags flags = config.flags_of(tensor);
  ties.tied = flags.said(true);
  ties.untied = !ties.tied && flags.said(false);
  return ties;
}

Result<std::optional<TiedWeights>> find_tied_weights(const Plan& base, const BaseTies& ties) {
  std::vector<std::size_t> embeddings;
  std::vector<std::size_t> heads;
  for (std::size_t i = 0; i < base.tensors.size(); ++i) {
    if (is_input_embedding(base.tensors[i].name)) embeddings.push_back(i);
    if (is_output_head(base.tensors[i].name)) heads.push_back(i);
  }
  if (!ties.tied && (ties.untied || !heads.empty())) return std::optional<TiedWeights>();
  if (embeddings.size() != 1 || heads.size() > 1) {
    return make_error(ErrorCode::kUnsupported,
                      "changes an embedding or an output head of a base model with " +
                          std::to_string(embeddings.size()) + " embeddings and " +
                          std::to_string(heads.size()) +
                          " output heads: which of them are tied cannot be told");
  }
  const TensorPlan& embedding = base.tensors[embeddings.front()];
  TiedWeights tied{embeddings.front(), std::nullopt, head_of(ties, embedding.name)};
  if (heads.empty()) return std::optional(tied);
  const TensorPlan& head = base.tensors[heads.front()];
  if (head.shape != embedding.shape || head.dtype != embedding.dtype) {
    return differ(embedding, head);
  }
  tied.head = heads.front();
  return std::optional(tied);
}

Status check_equal(const FileSystem& files, const Plan& plan, std::size_t embedding,
                   std::size_t head) {
  EVALCAR_ASSIGN_OR_RETURN(const bool equal, are_equal(files, plan, embedding, head));
  if (equal) return {};
  return differ(plan.tensors[embedding], plan.tensors[head]);
}

std::string untold_ties(const Plan& base, const BaseTies& ties, const std::string& weight,
                        bool is_copy) {
  const bool is_shared = is_shared_embedding(weight);
  if (!is_shared && !is_rare_embedding(weight))
    return ties.untied ? std::string() : untold_listed_ties(base, ties, weight, is_copy);
  const auto has_any = [&](bool (*is_it)(std::string_view)) {
    return std::ranges::any_of(base.tensors,
                               [&](const TensorPlan& tensor) { return is_it(tensor.name); });
  };
  if (is_copy && is_shared) {
    return ", which encoder and decoder share: in PEFT's merged model they keep the old one, and "
           "no file can say that";
  }
  const auto head = head_of(ties, weight);
  const bool headless = head && head->weight.empty();
  if (is_copy && !headless && !ties.untied)
    return ", and it cannot be told what the output head is called that the base model ties to it";
  // What is stored twice would have to be changed twice.
  if ((is_shared && has_any(is_input_embedding)) || (!ties.untied && has_any(may_be_output_head)))
    return kUntold;
  return {};
}

}  // namespace evalcar::checkpoint
