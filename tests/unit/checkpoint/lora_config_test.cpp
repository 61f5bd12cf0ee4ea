// What adapter_config.json may say: the rest is refused by name.
#include "store/checkpoint/lora_config.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/checkpoint/lora_files.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;
using nlohmann::json;

TEST_CASE("what PEFT would merge otherwise is refused by name") {
  const std::vector<std::pair<const char*, json>> settings = {
      {"use_dora", true},
      {"lora_bias", true},
      {"layer_replication", {{0, 2}}},
      {"target_parameters", {"experts.gate_up_proj"}},
      {"trainable_token_indices", {1, 2}},
      {"use_qalora", true},
      {"alora_invocation_tokens", {5}},
      {"arrow_config", {{"top_k", 2}}},
      {"kasa_config", {{"a", 1}}},
      {"use_bdlora", {{"nblocks", 2}}},
      {"megatron_config", {{"a", 1}}},
      {"init_lora_weights", "pissa_niter_4"},
      {"init_lora_weights", "loftq"},
      {"init_lora_weights", "olora"},
      {"init_lora_weights", "corda"},
      {"init_lora_weights", "lora_ga"},
      {"peft_type", "LOHA"},
      {"use_something_new", true}};
  for (const auto& [key, value] : settings) {
    Adapter adapter;
    adapter.config[key] = value;
    const auto parsed = parse_lora_config(adapter.config.dump(), "adapter_config.json");
    REQUIRE_FALSE(parsed.has_value());
    CHECK(parsed.error().code == ErrorCode::kUnsupported);
    // Judged from the adapter alone: waiting cannot help.
    says(adapter.refusal(), "unsupported", std::string(key) == "peft_type" ? "LOHA" : key);
  }
  for (const char* const key :
       {"lora_magnitude_vector", "lora_B.bias", "lora_B.default.bias", "lora_E"}) {
    Adapter adapter;
    adapter.tensors.push_back({Adapter::q() + "." + key, {2, 4}});
    says(adapter.refusal(), "unsupported", key);
  }
  Adapter adapter;
  adapter.tensors[0].name = "unet.q.lora_A.weight";
  says(adapter.refusal(), "unsupported", "base_model.model.");
}

TEST_CASE("what says nothing is no reason to refuse") {
  Adapter adapter;
  adapter.config.update({{"use_dora", false},
                         {"trainable_token_indices", nullptr},
                         {"eva_config", {{"rho", 2}}},
                         {"peft_version", "0.99"},
                         {"revision", nullptr},
                         {"a_key_of_tomorrow", nullptr},
                         {"another", json::array()},
                         {"loftq_config", json::object()},
                         {"qalora_group_size", 16},
                         {"lora_dropout", 0.1}});
  CHECK(adapter.refusal() == "accepted");
}

TEST_CASE("a malformed adapter_config.json is refused with the key and what it says") {
  const std::vector<std::pair<const char*, json>> settings = {{"r", 0},
                                                              {"r", -1},
                                                              {"r", 1.5},
                                                              {"r", "8"},
                                                              {"r", std::uint64_t{1} << 63U},
                                                              {"r", nullptr},
                                                              {"lora_alpha", "16"},
                                                              {"lora_alpha", nullptr},
                                                              {"use_rslora", 1},
                                                              {"bias", "some"},
                                                              {"rank_pattern", {"q_proj"}},
                                                              {"rank_pattern", {{"q_proj", 0}}},
                                                              {"alpha_pattern", {{"q_proj", "x"}}},
                                                              {"modules_to_save", "lm_head"},
                                                              {"modules_to_save", {1}},
                                                              {"target_modules", {1}},
                                                              {"base_model_name_or_path", 5},
                                                              {"peft_type", nullptr}};
  for (const auto& [key, value] : settings) {
    Adapter adapter;
    adapter.config[key] = value;
    says(adapter.refusal(), "corrupt", key);
  }
  Adapter adapter;
  adapter.config["lora_alpha"] = 1e39;  // finite, but no float32
  says(adapter.refusal(), "corrupt", "not a finite number");
  adapter.config["lora_alpha"] = 4;
  adapter.config["alpha_pattern"] = {{"(?i)q_proj", 1}};
  says(adapter.refusal(), "unsupported", "(?i)q_proj");
}

TEST_CASE("an adapter_config.json is bounded in size, depth and numbers") {
  const auto refusal_of = [](const std::string& text) {
    const Adapter adapter;
    adapter.write();
    adapter.scratch.write("checkpoint-5/adapter_config.json", text);
    const auto made =
        make_plan(RealFileSystem(), adapter.scratch.at("checkpoint-5"), WeightsKind::kRegular);
    return made.has_value() ? std::string("accepted") : made.error().message;
  };
  CHECK(refusal_of("{\"r\": NaN}").find("byte") != std::string::npos);
  CHECK(refusal_of("{\"r\": 1e999}").find("adapter_config.json") != std::string::npos);
  CHECK(refusal_of("{\"r\": 1, \"r\": 2}").find("adapter_config.json") != std::string::npos);
  CHECK(refusal_of(std::string(100'000, '[')).find("adapter_config.json") != std::string::npos);
  CHECK(refusal_of("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}")
            .find("adapter_config.json") != std::string::npos);
  CHECK(refusal_of("{\"a\":\"" + std::string(3 << 20U, 'x') + "\"}").find("adapter_config.json") !=
        std::string::npos);
}
