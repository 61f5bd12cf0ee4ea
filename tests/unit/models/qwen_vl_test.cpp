// What Qwen2-VL and Qwen3-VL add to the decoder: sections, grids of positions, their
// configurations.
#include "evaluator/models/qwen_vl.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "evaluator/models/qwen2_vl/model.h"
#include "evaluator/models/qwen3_vl/model.h"
#include "evaluator/models/vit/grid_positions.h"

using namespace evalcar::models;
using nlohmann::json;

namespace {

json text_numbers() {
  return {{"vocab_size", 1000},         {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 3},     {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"tie_word_embeddings", true}};
}

json qwen3_vl_config() {
  json text = text_numbers();
  text["head_dim"] = 16;
  text["rope_scaling"] = {
      {"rope_type", "default"}, {"mrope_section", {4, 2, 2}}, {"mrope_interleaved", true}};
  text["rope_theta"] = 5e6;
  return {{"text_config", text},
          {"vision_config",
           {{"depth", 4},
            {"hidden_size", 32},
            {"intermediate_size", 48},
            {"num_heads", 2},
            {"out_hidden_size", 64},
            {"num_position_embeddings", 36},
            {"deepstack_visual_indexes", {0, 2}}}},
          {"image_token_id", 990}};
}

}  // namespace

TEST_CASE("interleaved sections deal the frequencies out in turn, and time has the rest") {
  const json json_config = {{"rope_parameters", {{"mrope_section", {4, 2, 2}}}}};
  decoder::Config text;
  text.head_dim = 16;

  const auto read = qwen_vl::read_sections(ConfigFields(json_config, "c"),
                                           qwen_vl::Sections::kInterleaved, {}, text);

  REQUIRE(read.has_value());
  CHECK(text.position_axis == std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 0, 0});
}

TEST_CASE("sections that do not fill the head are refused") {
  const json json_config = {{"rope_parameters", {{"mrope_section", {4, 2, 1}}}}};
  decoder::Config text;
  text.head_dim = 16;

  CHECK_FALSE(
      qwen_vl::read_sections(ConfigFields(json_config, "c"), qwen_vl::Sections::kBlocks, {}, text)
          .has_value());
}

TEST_CASE("a Qwen3-VL of 4.57 is read, and what contradicts itself is refused by name") {
  const auto config = qwen3_vl::parse_config(qwen3_vl_config(), "config.json");
  REQUIRE(config.has_value());
  CHECK(config->text.qk_norm);
  CHECK(config->text.rope.theta == 5e6);
  CHECK(config->text.tied_head);
  CHECK(config->vision.patch == 16);
  CHECK(config->vision.grid_side == 6);
  CHECK(config->vision.deepstack == std::vector<std::int64_t>{0, 2});

  for (const auto& [key, value] : {std::pair<const char*, json>{"num_position_embeddings", 35},
                                   {"deepstack_visual_indexes", {0, 4}},
                                   {"deepstack_visual_indexes", {2, 0}},
                                   {"deepstack_visual_indexes", {2, 2}},
                                   {"out_hidden_size", 128},
                                   {"hidden_act", "gelu"},
                                   {"num_heads", 3}}) {
    json changed = qwen3_vl_config();
    changed["vision_config"][key] = value;
    CHECK_FALSE(qwen3_vl::parse_config(changed, "config.json").has_value());
  }
}

TEST_CASE("the flat and the nested configuration of Qwen2-VL give the same model") {
  json nested = {
      {"text_config", text_numbers()},
      {"vision_config", {{"depth", 4}, {"embed_dim", 32}, {"hidden_size", 64}, {"num_heads", 2}}},
      {"image_token_id", 990}};
  nested["text_config"]["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 5e5}, {"mrope_section", {2, 3, 3}}};
  json flat = text_numbers();
  flat["vision_config"] = nested["vision_config"];
  flat["image_token_id"] = 990;
  flat["rope_theta"] = 5e5;
  flat["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {2, 3, 3}}};

  for (const json& source : {nested, flat}) {
    const auto config = qwen2_vl::parse_config(source, "config.json");
    REQUIRE(config.has_value());
    CHECK(config->text.qkv_bias);
    CHECK(config->text.rope.theta == 5e5);
    CHECK(config->text.position_axis == std::vector<std::int64_t>{0, 0, 1, 1, 1, 2, 2, 2});
    CHECK(config->vision.hidden == 32);
    CHECK(config->vision.intermediate == 128);
    CHECK(config->vision.out_hidden == 64);
    CHECK(config->image_token_id == 990);
  }
}

TEST_CASE("the corners of a picture take the corners of the grid, and weights add up to one") {
  const std::vector<ImageGrid> grids = {{1, 4, 6}};

  const vit::GridTaps taps = vit::grid_taps(grids, 2, 3);

  REQUIRE(taps.indices.size() == 4 * 24);
  CHECK(taps.indices[0] == 0);
  CHECK(taps.weights[0] == 1.0F);
  const std::size_t last = 4 * 23;  // row 3, column 5
  CHECK(taps.indices[last] == 8);
  CHECK(taps.weights[last] == 1.0F);
  for (std::size_t patch = 0; patch < 24; ++patch) {
    float sum = 0;
    for (std::size_t tap = 0; tap < 4; ++tap) sum += taps.weights[4 * patch + tap];
    CHECK(std::abs(sum - 1.0F) < 1e-6F);
  }
  // Merge windows first: the second patch is column 1 of row 0, a fifth of the way to the end.
  CHECK(std::abs(taps.weights[4 + 1] - 0.4F) < 1e-6F);
  CHECK(taps.indices[4 * 2] == 0);  // the third is row 1 of column 0
  CHECK(taps.weights[4 * 2 + 2] > 0.6F);
}
