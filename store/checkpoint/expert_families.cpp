#include "store/checkpoint/expert_families.h"

#include <algorithm>

#include "store/checkpoint/model_config.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kSparse = "block_sparse_moe";
constexpr std::array<ExpertNamePair, 3> kRouter = {{{"gate.weight", "gate.weight"}}};
constexpr std::array<ExpertNamePair, 3> kOfGranite = {
    {{"router.weight", "router.layer.weight"},
     {"experts.gate_up_proj", "input_linear.weight"},
     {"experts.down_proj", "output_linear.weight"}}};
constexpr std::array<ExpertFamily, 23> kExpertFamilies = {{
    {"deepseek_v2", ExpertForm::kProjections},
    {"deepseek_v3", ExpertForm::kProjections},
    {"dots1", ExpertForm::kProjections},
    {"ernie4_5_moe",
     ExpertForm::kProjections,
     {},
     {{{"gate.moe_statics.e_score_correction_bias", "moe_statics.e_score_correction_bias"}}}},
    {"flex_olmo", ExpertForm::kProjections},
    {"glm4_moe", ExpertForm::kProjections},
    {"glm4v_moe", ExpertForm::kProjections},
    {"granitemoe", ExpertForm::kStacked, {}, kOfGranite},
    {"granitemoehybrid", ExpertForm::kStacked, {}, kOfGranite},
    {"granitemoeshared", ExpertForm::kStacked, {}, kOfGranite},
    {"hunyuan_v1_moe", ExpertForm::kProjections},
    {"jamba", ExpertForm::kProjections},
    {"lfm2_moe", ExpertForm::kNumbers},
    {"minimax", ExpertForm::kNumbers, kSparse, kRouter},
    {"mixtral", ExpertForm::kNumbers, kSparse, kRouter},
    {"olmoe", ExpertForm::kProjections},
    {"phimoe", ExpertForm::kNumbers, kSparse, {{{"router.weight", "gate.weight"}}}},
    {"qwen2_moe", ExpertForm::kProjections},
    {"qwen3_moe", ExpertForm::kProjections},
    {"qwen3_next", ExpertForm::kProjections},
    {"qwen3_omni_moe", ExpertForm::kProjections},
    {"qwen3_omni_moe_thinker", ExpertForm::kProjections},
    {"qwen3_vl_moe", ExpertForm::kTransposed},
}};

/// Null: none of them.
const ExpertFamily* family_of(std::string_view model_type) {
  const auto found =
      std::find_if(kExpertFamilies.begin(), kExpertFamilies.end(),
                   [&](const ExpertFamily& each) { return each.model_type == model_type; });
  return found == kExpertFamilies.end() ? nullptr : &*found;
}

}  // namespace

Result<const ExpertFamily*> find_expert_family(std::string_view config_text,
                                               const std::string& where) {
  EVALCAR_ASSIGN_OR_RETURN(const ModelConfig config, parse_model_config(config_text, where));
  const ExpertFamily* const whole = family_of(config.whole.model_type);
  return whole != nullptr ? whole : family_of(config.text.model_type);
}

}  // namespace evalcar::checkpoint
