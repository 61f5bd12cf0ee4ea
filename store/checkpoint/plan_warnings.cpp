#include "store/checkpoint/plan_warnings.h"

#include <algorithm>

#include "store/checkpoint/expert_names.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/save_times.h"
#include "store/checkpoint/torchtitan_names.h"

namespace evalcar::checkpoint {
namespace {

std::string about_extra_states(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  return "left out: " + std::to_string(names.size()) + (names.size() == 1 ? " entry" : " entries") +
         " that modules keep beside their weights (_extra_state, such as TransformerEngine's "
         "scales), the first " +
         quote_name(names[0]);
}

std::string about_left_out(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  constexpr std::size_t kTold = 5;
  std::string text = "left out, since only the tensors of the model are read: ";
  for (std::size_t i = 0; i < std::min(names.size(), kTold); ++i) {
    text += (i == 0 ? "" : ", ") + quote_name(names[i]);
  }
  if (names.size() > kTold) text += " and " + std::to_string(names.size() - kTold) + " more";
  return text;
}

std::string about_native_names(const Plan& plan) {
  if (!has_torchtitan_names(plan)) return {};
  return "the tensors have torchtitan's names (tok_embeddings, layers.N.attention.wq, …), which "
         "are kept; transformers knows none of them, and rows of a Llama's wq and wk lie in "
         "another order there. Of a Llama or a dense Qwen3 in a DCP folder they are made "
         "transformers' by the configuration of the model that training started from "
         "(evaluate.base_model, --model_name_or_class)";
}

std::string about_fused_experts(const Plan& plan) {
  const std::string_view name = fused_experts_of(plan);
  if (name.empty()) return {};
  return quote_name(name) +
         " holds all experts of a layer, as the modules of transformers 5 do, and is kept so; 4.57 "
         "has them so of no model that it knows. They get the names and shapes of the hub where "
         "config.json, in the checkpoint or in the model that training started from "
         "(--model_name_or_class), is of a family of which these are known (Mixtral, Qwen's and "
         "DeepSeek's mixtures, …), and no scales lie beside them";
}

}  // namespace

std::vector<std::string> warnings_of(const FileSystem& files, const Plan& plan) {
  std::vector<std::string> warnings;
  for (const std::string& text :
       {doubt_of_one_save(files, plan), about_extra_states(plan.extra_states),
        about_left_out(plan.left_out), about_native_names(plan), about_fused_experts(plan)}) {
    if (!text.empty()) warnings.push_back(text);
  }
  return warnings;
}

}  // namespace evalcar::checkpoint
