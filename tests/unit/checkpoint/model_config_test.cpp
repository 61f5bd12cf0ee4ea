#include "store/checkpoint/model_config.h"

#include <catch2/catch_test_macros.hpp>

namespace evalcar::checkpoint {
namespace {

ModelConfig parsed(std::string_view text) {
  auto config = parse_model_config(text, "config.json");
  REQUIRE(config.has_value());
  return *config;
}

TEST_CASE("ModelConfig: each part has its own keys", "[checkpoint]") {
  const ModelConfig config = parsed(
      R"({"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl",
          "tie_word_embeddings": true, "quantization_config": {"bits": 4},
          "text_config": {"model_type": "qwen3_vl_text", "attention_bias": false,
                          "num_hidden_layers": 3, "rope": {"hidden_size": 7}},
          "vision_config": {"depth": 2}})");
  CHECK(config.generates);
  CHECK(config.whole.is_there);
  CHECK(config.whole.model_type == "qwen3_vl");
  CHECK(config.whole.is_tied == true);
  CHECK(config.whole.is_quantized);
  CHECK_FALSE(config.whole.number("num_hidden_layers"));
  CHECK(config.text.is_there);
  CHECK(config.text.model_type == "qwen3_vl_text");
  CHECK(config.text.has_biases == false);
  CHECK_FALSE(config.text.is_tied.has_value());
  CHECK_FALSE(config.text.is_quantized);
  CHECK(config.text.number("num_hidden_layers") == 3);
  CHECK_FALSE(config.text.number("hidden_size"));  // of a part within the part
  CHECK(config.tower.number("depth") == 2);
}

TEST_CASE("ModelConfig: what has another type than expected is absent", "[checkpoint]") {
  const ModelConfig config = parsed(
      R"({"architectures": "LlamaForCausalLM", "model_type": 5, "tie_word_embeddings": "true",
          "attention_bias": 1, "num_hidden_layers": -3, "hidden_size": 2.5, "vocab_size": "8",
          "text_config": [{"model_type": "llama"}], "vision_config": null})");
  CHECK_FALSE(config.generates);
  CHECK(config.whole.model_type.empty());
  CHECK_FALSE(config.whole.is_tied.has_value());
  CHECK_FALSE(config.whole.has_biases.has_value());
  CHECK(config.whole.numbers.empty());
  CHECK_FALSE(config.text.is_there);
  CHECK(config.text.model_type.empty());
  CHECK_FALSE(config.tower.is_there);
}

TEST_CASE("ModelConfig: any JSON value is taken, and what is none is told by its file",
          "[checkpoint]") {
  for (const std::string_view text : {"5", "[]", "null", R"(["model_type"])"}) {
    CHECK_FALSE(parsed(text).whole.is_there);
  }
  const auto config = parse_model_config(R"({"model_type": )", "run/config.json");
  REQUIRE_FALSE(config.has_value());
  CHECK(config.error().code == ErrorCode::kCorruption);
  CHECK(config.error().message.find("run/config.json") != std::string::npos);
}

}  // namespace
}  // namespace evalcar::checkpoint
