// LLaVA-OneVision's configuration in its forms, its tensors' names, and which pictures it takes.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "evaluator/models/llava_onevision/config.h"
#include "evaluator/models/llava_onevision/layout.h"
#include "evaluator/models/llava_onevision/model.h"

using namespace evalcar;
using namespace evalcar::models;
using nlohmann::json;

namespace {

json small_config() {
  return json::parse(R"({
    "model_type": "llava_onevision", "image_token_index": 150, "vision_feature_layer": -1,
    "image_grid_pinpoints": [[30, 30], [30, 60], [60, 30]],
    "text_config": {"model_type": "qwen2", "vocab_size": 160, "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "rope_theta": 5e5},
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 30,
      "patch_size": 7, "vision_use_head": false}})");
}

Result<llava_onevision::Config> parse(const json& config) {
  return llava_onevision::parse_config(config, "config.json");
}

}  // namespace

TEST_CASE("a LLaVA-OneVision of 4.x and of 5.x are the same model") {
  json newer = small_config();
  newer["text_config"].erase("rope_theta");
  newer["text_config"]["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  newer.erase("image_token_index");
  newer["image_token_id"] = 150;

  for (const json& source : {small_config(), newer}) {
    const auto config = parse(source);
    REQUIRE(config.has_value());
    CHECK(config->text.qkv_bias);
    CHECK(config->text.rope.theta == 5e5);
    CHECK(config->vision.side() == 4);
    CHECK(config->feature_layers == std::vector<std::int64_t>{3});
    CHECK(config->anyres.resolutions.size() == 3);
    CHECK(config->anyres.most_tiles == 9);
    CHECK(config->image_token_id == 150);
  }
}

TEST_CASE("what a file of 4.x leaves out is what transformers takes for it") {
  const json config = {{"text_config", json::object()}, {"vision_config", {{"image_size", 384}}}};

  const auto read = parse(config);

  REQUIRE(read.has_value());
  CHECK(read->text.vocab == 151936);
  CHECK(read->text.kv_heads == 32);
  CHECK(read->vision.hidden == 768);
  CHECK(read->vision.pooling_head);
  CHECK(read->anyres.resolutions.size() == 36);
  CHECK(read->image_token_id == 151646);
}

TEST_CASE("several feature layers stand beside each other, counted from either end") {
  json config = small_config();
  config["vision_feature_layer"] = {-4, 2};
  CHECK(parse(config)->feature_layers == std::vector<std::int64_t>{0, 2});
}

TEST_CASE("a LLaVA-OneVision that is not computed, or contradicts itself, is refused by name") {
  const auto refused = [](const char* key, const json& value, const char* part = nullptr) {
    json config = small_config();
    (part == nullptr ? config : config[part])[key] = value;
    const auto read = parse(config);
    INFO(key);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().message.starts_with("config.json"));
    CHECK(read.error().message.find(key) != std::string::npos);
  };
  refused("text_config", nullptr);
  refused("vision_config", nullptr);
  refused("vision_feature_layer", 4);
  refused("vision_feature_layer", json::array());
  refused("vision_feature_layer", {1, -5});
  refused("vision_feature_select_strategy", "default");
  refused("vision_aspect_ratio", "anyres");
  refused("projector_hidden_act", "relu");
  refused("image_grid_pinpoints", {{30, 31}});
  refused("image_grid_pinpoints", nullptr);  // the usual list is of squares of 384
  refused("image_token_index", 160);
  refused("image_token_id", 151);  // and image_token_index is 150
  refused("model_type", "llama", "text_config");
  refused("model_type", "clip_vision_model", "vision_config");
  refused("num_attention_heads", 3, "vision_config");
  refused("patch_size", 31, "vision_config");
  refused("patch_size", {7, 7}, "vision_config");
  refused("hidden_act", "gelu", "vision_config");
  refused("num_channels", 1, "vision_config");
  refused("num_hidden_layers", 1 << 20, "vision_config");
}

TEST_CASE("the names of all generations are one name") {
  using llava_onevision::canonical_name;
  for (const char* stored : {"language_model.model.layers.0.mlp.up_proj.weight",
                             "model.language_model.layers.0.mlp.up_proj.weight"})
    CHECK(canonical_name(stored) == "model.layers.0.mlp.up_proj.weight");
  for (const char* stored : {"language_model.lm_head.weight", "lm_head.weight"})
    CHECK(canonical_name(stored) == "lm_head.weight");
  for (const char* stored :
       {"vision_tower.vision_model.post_layernorm.bias", "vision_tower.post_layernorm.bias",
        "model.vision_tower.vision_model.post_layernorm.bias",
        "model.vision_tower.post_layernorm.bias"})
    CHECK(canonical_name(stored) == "vision_tower.post_layernorm.bias");
  for (const char* stored : {"image_newline", "model.image_newline"})
    CHECK(canonical_name(stored) == "image_newline");
  CHECK(canonical_name("model.multi_modal_projector.linear_1.bias") ==
        "multi_modal_projector.linear_1.bias");
}

TEST_CASE("the pooling head is expected where the configuration does not say that there is none") {
  json config = small_config();
  const auto names = [](const json& source) {
    std::set<std::string> expected;
    for (const auto& tensor : llava_onevision::make_layout(*parse(source)).sources)
      expected.insert(tensor.name);
    return expected;
  };
  CHECK(names(config).contains("vision_tower.encoder.layers.2.self_attn.k_proj.bias"));
  CHECK_FALSE(names(config).contains("vision_tower.head.probe"));

  config["vision_config"].erase("vision_use_head");
  CHECK(names(config).contains("vision_tower.head.probe"));
}

TEST_CASE(
    "the matrices of the tower that are computed with are marked, what nothing reads is not") {
  json config = small_config();
  config["vision_feature_layer"] = -2;  // the last block is of no use
  config["vision_config"].erase("vision_use_head");

  std::set<std::string> marked;
  for (const auto& tensor : llava_onevision::make_layout(*parse(config)).residents)
    if (tensor.rows == weights::Rows::kMany) marked.insert(tensor.name);

  std::set<std::string> used = {"multi_modal_projector.linear_1.weight",
                                "multi_modal_projector.linear_2.weight"};
  for (const char* block : {"0.", "1."}) {
    for (const char* part : {"self_attn.qkv_proj", "self_attn.out_proj", "mlp.fc1", "mlp.fc2"})
      used.insert("vision_tower.encoder.layers." + std::string(block) + part + ".weight");
  }
  CHECK(marked == used);
}

TEST_CASE("a picture that was not cut as the model asks is refused") {
  const auto model = llava_onevision::make_model(small_config(), "config.json");
  REQUIRE(model.has_value());
  const auto tokens = [&](const ImageGrid& grid) { return (*model)->image_tokens(grid); };

  CHECK(*tokens({2, 4, 4, 30, 30}) == 16 + 4 * 5);
  CHECK(*tokens({3, 4, 4, 30, 60}) == 16 + 4 * 9);
  CHECK_FALSE(tokens({3, 4, 4, 30, 30}).has_value());  // one square too many
  CHECK_FALSE(tokens({2, 4, 6, 30, 30}).has_value());
  CHECK_FALSE(tokens({2, 4, 4}).has_value());  // of no size
  CHECK_FALSE(tokens({2, 4, 4, 30, std::int64_t{1} << 40}).has_value());
}
