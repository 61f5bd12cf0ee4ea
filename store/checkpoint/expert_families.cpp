#include "store/checkpoint/expert_families.h"

#include <algorithm>

#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/tie_config.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kSparse = "block_sparse_moe";
constexpr std::array<ExpertNamePair, 3> kRouter = {{{"gate.weight", "gate.weight"}}};
constexpr std::array<ExpertNamePair, 3> kOfGranite = {
    {{"router.weight", "router.layer.weight"},
     {"experts.gate_up_proj", "input_linear.weight"},
     {"experts.down_proj", "output_linear.weight"}}};
constexpr std::array<ExpertFamily, 23> kFamilies = {{
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
const ExpertFamily* find_family(std::string_view model_type) {
  const auto found =
      std::find_if(kFamilies.begin(), kFamilies.end(),
                   [&](const ExpertFamily& each) { return each.model_type == model_type; });
  return found == kFamilies.end() ? nullptr : &*found;
}

class ModelTypeScan final : public JsonVisitor {
 public:
  /// The whole model's, else that of a text model that is a part of it. Null: none is known.
  const ExpertFamily* family() const {
    const ExpertFamily* const whole = find_family(whole_);
    return whole != nullptr ? whole : find_family(text_);
  }

 private:
  std::string scalar(const JsonPath& path, const JsonScalar& value) override {
    if (path.empty() || path.back() != "model_type" || value.kind != JsonScalar::Kind::kString)
      return {};
    if (path.size() == 1) whole_ = value.text;
    if (path.size() == 2 && path[0] == "text_config") text_ = value.text;
    return {};
  }
  std::string open(const JsonPath&, bool) override { return {}; }
  std::string close(const JsonPath&) override { return {}; }

  std::string whole_;
  std::string text_;
};

}  // namespace

Result<const ExpertFamily*> find_expert_family(std::string_view config_text,
                                               const std::string& where) {
  ModelTypeScan scan;
  EVALCAR_RETURN_IF_ERROR(scan_json(config_text, where, kMaxConfigDepth, scan));
  return scan.family();
}

}  // namespace evalcar::checkpoint
