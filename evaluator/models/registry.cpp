#include "evaluator/models/registry.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "evaluator/models/config_fields.h"
#include "evaluator/models/qwen2_5_vl/model.h"

namespace evalcar::models {
namespace {

struct Family {
  std::string_view model_type;
  std::string_view architecture;
  Result<std::unique_ptr<Model>> (*make)(const nlohmann::json& config, const std::string& place);
};

// A table, not static registration: what is in the program can be read here.
constexpr Family kFamilies[] = {
    {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", &qwen2_5_vl::make_model},
};

// The architecture's class decides where it is given; files without one are judged by model_type.
bool matches(const Family& family, const nlohmann::json& config) {
  const auto classes = config.find("architectures");
  if (classes != config.end() && classes->is_array() && !classes->empty()) {
    for (const auto& name : *classes) {
      if (name == family.architecture) return true;
    }
    return false;
  }
  const auto type = config.find("model_type");
  return type != config.end() && *type == family.model_type;
}

std::string seen(const nlohmann::json& config) {
  std::string text = "no model_type";
  if (config.contains("model_type") && config["model_type"].is_string())
    text = "model_type \"" + config["model_type"].get<std::string>().substr(0, 80) + "\"";
  if (config.contains("architectures") && config["architectures"].is_array() &&
      !config["architectures"].empty() && config["architectures"][0].is_string())
    text +=
        ", architecture \"" + config["architectures"][0].get<std::string>().substr(0, 80) + "\"";
  return text;
}

}  // namespace

Result<std::unique_ptr<Model>> make_model(const FileSystem& files, const std::string& dir) {
  EVALCAR_ASSIGN_OR_RETURN(const nlohmann::json config, read_config(files, dir));
  const std::string place = join_path(dir, "config.json");
  std::string known;
  for (const Family& family : kFamilies) {
    if (matches(family, config)) return family.make(config, place);
    known += (known.empty() ? "" : ", ") + std::string(family.model_type) + " (" +
             std::string(family.architecture) + ")";
  }
  return make_error(ErrorCode::kUnsupported,
                    place + ": " + seen(config) + " is not known; known are: " + known);
}

std::vector<KnownModel> known_models() {
  std::vector<KnownModel> known;
  for (const Family& family : kFamilies)
    known.push_back({std::string(family.model_type), std::string(family.architecture)});
  return known;
}

}  // namespace evalcar::models
