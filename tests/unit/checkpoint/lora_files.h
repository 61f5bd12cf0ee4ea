// Adapters over a base model, built by hand.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "store/checkpoint/numeric.h"
#include "store/checkpoint/safetensors.h"
#include "tests/unit/checkpoint/support.h"

namespace evalcar::checkpoint::testing {

/// A tensor of one value.
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  float value = 1;
};

/// A safetensors file.
inline std::string file_of(const std::vector<Tensor>& tensors) {
  std::vector<SafetensorsTensor> header;
  std::string data;
  for (const Tensor& tensor : tensors) {
    const std::vector<float> values(checked_elements(tensor.shape).value(), tensor.value);
    header.push_back(
        {tensor.name, DType::kFloat32, tensor.shape, data.size(), data.size() + values.size() * 4});
    data += bytes_of(values);
  }
  return make_safetensors_header(header, {}).value() + data;
}

/// A run with a base model of two matrices, and an adapter over it; each part can be made wrong.
struct Adapter {
  ScratchFolder scratch;
  std::vector<Tensor> base = {{"model.embed_tokens.weight", {6, 4}},
                              {"model.layers.0.q_proj.weight", {8, 4}},
                              {"model.layers.0.o_proj.weight", {4, 4}},
                              {"lm_head.weight", {6, 4}}};
  nlohmann::json base_config = {{"model_type", "x"}, {"tie_word_embeddings", false}};
  nlohmann::json config = {{"peft_type", "LORA"},
                           {"r", 2},
                           {"lora_alpha", 4},
                           {"target_modules", {"q_proj", "o_proj"}},
                           {"base_model_name_or_path", scratch.at("base")}};
  std::vector<Tensor> tensors = {{q() + ".lora_A.weight", {2, 4}, 0.5F},
                                 {q() + ".lora_B.weight", {8, 2}, 3}};

  static std::string q() { return "base_model.model.model.layers.0.q_proj"; }
  static std::string named(const std::string& module) { return "base_model.model." + module; }

  void write() const {
    scratch.write("base/config.json", base_config.dump());
    scratch.write("base/model.safetensors", file_of(base));
    scratch.write("checkpoint-5/adapter_model.safetensors", file_of(tensors));
    scratch.write("checkpoint-5/adapter_config.json", config.dump());
  }
  Result<Plan> plan() const {
    write();
    return make_plan(RealFileSystem(), scratch.at("checkpoint-5"), WeightsKind::kRegular);
  }
  /// The refusal, with its code before it.
  std::string refusal() const {
    const auto made = plan();
    if (made.has_value()) return "accepted";
    switch (made.error().code) {
      case ErrorCode::kCorruption:
        return "corrupt: " + made.error().message;
      case ErrorCode::kUnsupported:
        return "unsupported: " + made.error().message;
      case ErrorCode::kInvalidArgument:
        return "invalid: " + made.error().message;
      case ErrorCode::kNotFound:
        return "not found: " + made.error().message;
      case ErrorCode::kUnavailable:
        return "unavailable: " + made.error().message;
      default:
        return made.error().message;
    }
  }
};

/// Checks a refusal: how it begins and what it names.
inline bool says(const std::string& text, std::string_view code, std::string_view part) {
  INFO(text);
  CHECK(text.starts_with(code));
  CHECK(text.find(part) != std::string::npos);
  return text.starts_with(code) && text.find(part) != std::string::npos;
}

}  // namespace evalcar::checkpoint::testing
