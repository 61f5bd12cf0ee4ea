#include "evaluator/models/qwen2_5_vl/config.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

using namespace evalcar::models::qwen2_5_vl;
using nlohmann::json;

namespace {

json text_numbers() {
  return {{"vocab_size", 1000},     {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 3}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"rms_norm_eps", 1e-6},   {"hidden_act", "silu"}};
}

json vision_numbers() {
  return {{"depth", 4},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"num_heads", 2},
          {"out_hidden_size", 64},
          {"window_size", 112},
          {"in_chans", 3},
          {"fullatt_block_indexes", {1, 3}}};
}

// transformers 5.x
json nested() {
  json text = text_numbers();
  text["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 5e5}, {"mrope_section", {2, 3, 3}}};
  return {{"text_config", text},
          {"vision_config", vision_numbers()},
          {"image_token_id", 990},
          {"tie_word_embeddings", true}};
}

// The hub's form, up to transformers 4.51
json flat() {
  json config = text_numbers();
  config["rope_theta"] = 5e5;
  config["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {2, 3, 3}}};
  config["vision_config"] = vision_numbers();
  config["image_token_id"] = 990;
  config["tie_word_embeddings"] = true;
  return config;
}

}  // namespace

TEST_CASE("the flat and the nested configuration give the same model") {
  for (const json& source : {nested(), flat()}) {
    const auto config = parse_config(source, "config.json");

    REQUIRE(config.has_value());
    CHECK(config->text.head_dim == 16);
    CHECK(config->text.rope.theta == 5e5);
    CHECK(config->text.position_axis == std::vector<std::int64_t>{0, 0, 1, 1, 1, 2, 2, 2});
    CHECK(config->vision.full_attention == std::vector<bool>{false, true, false, true});
    CHECK(config->vision.patch_elements() == 588);
    CHECK(config->vision.kernel_elements() == 1176);
    CHECK(config->vision.window_tokens() == 4);
    CHECK(config->text.tied_head);
    CHECK(config->image_token_id == 990);
  }
}

TEST_CASE("a tie that only text_config tells of is honoured") {
  json config = nested();
  config.erase("tie_word_embeddings");
  config["text_config"]["tie_word_embeddings"] = true;

  CHECK(parse_config(config, "config.json")->text.tied_head);
}

TEST_CASE("every number of a configuration is checked before it is used") {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "num_key_value_heads"}) {
    for (const json& bad : {json(0), json(-1), json(1e18), json(UINT64_MAX), json("64"), json(1.5),
                            json::array(), json::object()}) {
      json config = nested();
      config["text_config"][key] = bad;

      const auto parsed = parse_config(config, "config.json");

      REQUIRE_FALSE(parsed.has_value());
      CHECK(parsed.error().message.find(key) != std::string::npos);
    }
  }
}

TEST_CASE("the tower's heads and frequencies are found under each name that transformers reads") {
  const auto vision_with = [](const json& changes) {
    json config = nested();
    for (const auto& [key, value] : changes.items()) config["vision_config"][key] = value;
    return parse_config(config, "config.json");
  };

  CHECK(vision_with({{"rope_theta", 1e6}})->vision.rope_theta == 1e6);
  CHECK(vision_with({{"rope_scaling", {{"rope_type", "axial"}, {"rope_theta", 5e4}}}})
            ->vision.rope_theta == 5e4);
  CHECK(vision_with({{"rope_parameters", {{"rope_type", "default"}}}, {"rope_theta", 7e4}})
            ->vision.rope_theta == 7e4);
  CHECK(vision_with({})->vision.rope_theta == 10000.0);
  CHECK(vision_with({{"num_heads", nullptr}, {"num_attention_heads", 4}})->vision.heads == 4);
  CHECK(vision_with({{"num_attention_heads", 2}})->vision.heads == 2);

  const auto two = vision_with({{"num_attention_heads", 4}});
  REQUIRE_FALSE(two.has_value());
  CHECK(two.error().message ==
        "config.json: vision_config: num_attention_heads is 4; expected num_heads = 2");
  const auto scaled = vision_with({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}});
  REQUIRE_FALSE(scaled.has_value());
  CHECK(scaled.error().code == evalcar::ErrorCode::kUnsupported);
}
