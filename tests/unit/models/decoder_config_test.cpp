// The switches of the text families, from both generations of config.json.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "evaluator/models/text_families/families.h"

using namespace evalcar::models;
using namespace evalcar::models::text_families;
using evalcar::ErrorCode;
using nlohmann::json;

namespace {

json numbers() {
  return {{"vocab_size", 1000},     {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 4}, {"num_attention_heads", 4}, {"num_key_value_heads", 2}};
}

json with(json config, const json& changes) {
  config.update(changes);
  return config;
}

const json kLlama3 = {{"rope_type", "llama3"},
                      {"factor", 8.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0},
                      {"original_max_position_embeddings", 8192}};

}  // namespace

TEST_CASE("rope_parameters of 5.x and rope_scaling beside rope_theta of 4.x say the same") {
  json inside = kLlama3;
  inside["rope_theta"] = 5e5;
  for (const json& config : {with(numbers(), {{"rope_parameters", inside}}),
                             with(numbers(), {{"rope_scaling", kLlama3}, {"rope_theta", 5e5}})}) {
    const auto parsed = parse_llama(config, "config.json");

    REQUIRE(parsed.has_value());
    CHECK(parsed->rope.theta == 5e5);
    CHECK(parsed->rope.scaling == RotaryScaling::kLlama3);
    CHECK(parsed->rope.factor == 8.0);
    CHECK(parsed->rope.high_frequency == 4.0);
    CHECK(parsed->rope.original_positions == 8192.0);
  }
}

TEST_CASE("the oldest name of a rope type is read, and a null is none") {
  const json old = {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}};

  CHECK(parse_llama(with(numbers(), old), "c")->rope.scaling == RotaryScaling::kLinear);
  CHECK(parse_llama(with(numbers(), {{"rope_scaling", nullptr}}), "c")->rope.scaling ==
        RotaryScaling::kNone);
  CHECK(parse_llama(numbers(), "c")->rope.theta == 10000.0);
}

TEST_CASE("each family has its own switches") {
  const auto llama = parse_llama(numbers(), "c"), qwen2 = parse_qwen2(numbers(), "c");
  const auto qwen3 = parse_qwen3(numbers(), "c"), mistral = parse_mistral(numbers(), "c");
  REQUIRE((llama && qwen2 && qwen3 && mistral));

  CHECK_FALSE(llama->qkv_bias);
  CHECK(llama->head_dim == 16);
  CHECK(qwen2->qkv_bias);
  CHECK_FALSE(qwen2->output_bias);
  CHECK(qwen3->qk_norm);
  CHECK(qwen3->head_dim == 128);  // transformers' default, not hidden / heads
  CHECK(mistral->window == 4096);
  CHECK(mistral->windowed == std::vector<bool>(4, true));
  const auto biased =
      parse_llama(with(numbers(), {{"attention_bias", true}, {"mlp_bias", true}}), "c");
  CHECK((biased->qkv_bias && biased->output_bias && biased->mlp_bias));
}

TEST_CASE("a window of null is none, and Qwen's counts only where it is switched on") {
  const auto mistral = parse_mistral(with(numbers(), {{"sliding_window", nullptr}}), "c");
  CHECK(mistral->window == 0);
  CHECK(mistral->windowed == std::vector<bool>(4, false));

  const json window = {{"sliding_window", 32}, {"max_window_layers", 3}};
  CHECK(parse_qwen2(with(numbers(), window), "c")->windowed == std::vector<bool>(4, false));
  const auto on = parse_qwen2(with(with(numbers(), window), {{"use_sliding_window", true}}), "c");
  CHECK(on->window == 32);
  CHECK(on->windowed == std::vector<bool>{false, false, false, true});
}

TEST_CASE("the key heads that a file leaves out are the family's, and null is one a head") {
  json config = with(numbers(), {{"num_attention_heads", 8}});
  config.erase("num_key_value_heads");
  CHECK(parse_mistral(config, "c")->kv_heads == 8);
  CHECK(parse_llama(config, "c")->kv_heads == 8);
  CHECK_FALSE(parse_qwen2(config, "c").has_value());  // 32, of which 8 is no multiple
  config["num_key_value_heads"] = nullptr;
  CHECK(parse_qwen2(config, "c")->kv_heads == 8);
}

TEST_CASE("frequencies that this program does not compute are refused by name") {
  for (const char* type : {"yarn", "dynamic", "longrope", "proportional"}) {
    const auto parsed = parse_qwen3(
        with(numbers(), {{"rope_parameters", {{"rope_type", type}, {"factor", 4.0}}}}), "c");
    REQUIRE_FALSE(parsed.has_value());
    CHECK(parsed.error().code == ErrorCode::kUnsupported);
    CHECK(parsed.error().message.find(type) != std::string::npos);
  }
}
