// By which of lmms-eval 0.7.3's wrappers a family of models is asked: the evaluator follows it, and
// the agent tells a client who named another.
#pragma once

#include <string_view>

namespace evalcar::protocol {

/// The wrapper's name, as lmms-eval's --model has it. `family` is the model_type of config.json.
constexpr std::string_view wrapper_name(std::string_view family) {
  if (family == "qwen2_5_vl" || family == "qwen3_vl") return family;
  return family == "llava_onevision" ? "llava_hf" : "huggingface";
}

}  // namespace evalcar::protocol
