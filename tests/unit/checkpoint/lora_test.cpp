// Hostile and contradictory adapters. That good ones are merged to PEFT's bits is shown against
// PEFT itself (tests/parity/checkpoint/test_lora.py).
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "store/checkpoint/adapter_base.h"
#include "store/checkpoint/lora_config.h"
#include "store/checkpoint/lora_names.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/safetensors.h"
#include "tests/unit/checkpoint/support.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;
using nlohmann::json;

namespace {

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  float value = 1;
};

std::string file_of(const std::vector<Tensor>& tensors) {
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
  json base_config = {{"model_type", "x"}, {"tie_word_embeddings", false}};
  json config = {{"peft_type", "LORA"},
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

bool says(const std::string& text, std::string_view code, std::string_view part) {
  INFO(text);
  CHECK(text.starts_with(code));
  CHECK(text.find(part) != std::string::npos);
  return text.starts_with(code) && text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an adapter's update is added to its base's tensor, the others are the base's") {
  const Adapter adapter;
  const auto plan = adapter.plan();
  REQUIRE(plan.has_value());
  CHECK(plan->layout == Layout::kLoraAdapter);
  REQUIRE(plan->tensors.size() == 4);
  RealFileSystem files;
  const auto reader = PlanReader::open(files, *plan);
  REQUIRE(reader.has_value());
  for (std::size_t i = 0; i < 4; ++i) {
    const TensorPlan& tensor = plan->tensors[i];
    const bool updated = tensor.name == "model.layers.0.q_proj.weight";
    CHECK(tensor.is_stored_as_is() != updated);
    // 1 + (4 / 2) · 2 · (3 · 0.5)
    const std::vector<float> expected(tensor.elements(), updated ? 7.0F : 1.0F);
    CHECK(read_tensor(*reader, *plan, i) == bytes_of(expected));
  }
}

TEST_CASE("judged complete by its own files: both whole, and trainer_state.json if it is there") {
  const Adapter adapter;
  adapter.write();
  const RealFileSystem files;
  const auto state = [&] {
    return inspect_layout(files, adapter.scratch.at("checkpoint-5"))->kinds.at(0);
  };
  CHECK(state().completeness == Completeness::kComplete);
  CHECK(state().files ==
        std::vector<std::string>{"adapter_config.json", "adapter_model.safetensors"});

  const std::string config = adapter.scratch.read("checkpoint-5/adapter_config.json");
  adapter.scratch.write("checkpoint-5/adapter_config.json", config.substr(0, config.size() / 2));
  CHECK(state().completeness == Completeness::kIncomplete);
  CHECK_FALSE(state().damaged);
  std::filesystem::remove(adapter.scratch.at("checkpoint-5/adapter_config.json"));
  CHECK(state().completeness == Completeness::kIncomplete);
  CHECK_FALSE(state().damaged);
  adapter.scratch.write("checkpoint-5/adapter_config.json", config);

  const std::string weights = adapter.scratch.read("checkpoint-5/adapter_model.safetensors");
  adapter.scratch.write("checkpoint-5/adapter_model.safetensors",
                        weights.substr(0, weights.size() - 1));
  CHECK(state().completeness == Completeness::kIncomplete);
  CHECK_FALSE(state().damaged);
  adapter.scratch.write("checkpoint-5/adapter_model.safetensors", weights);

  adapter.scratch.write("checkpoint-5/trainer_state.json", "{\"global_st");
  CHECK(state().completeness == Completeness::kIncomplete);
  adapter.scratch.write("checkpoint-5/trainer_state.json", "{\"global_step\": 5}");
  CHECK(state().completeness == Completeness::kComplete);
}

TEST_CASE("an adapter that contradicts itself is refused") {
  {
    Adapter adapter;
    adapter.tensors.pop_back();
    says(adapter.refusal(), "corrupt", "has no lora_B");
  }
  {
    Adapter adapter;
    adapter.tensors.erase(adapter.tensors.begin());
    says(adapter.refusal(), "corrupt", "has no lora_A");
  }
  {
    Adapter adapter;
    adapter.config["r"] = 3;
    says(adapter.refusal(), "corrupt", "its rank in adapter_config.json is 3");
  }
  {
    Adapter adapter;
    adapter.tensors[0].shape = {2, 5};
    says(adapter.refusal(), "corrupt", "do not fit the weight of shape [8, 4]");
  }
  {
    Adapter adapter;
    adapter.tensors[1].shape = {8, 3};
    says(adapter.refusal(), "corrupt", "do not fit");
  }
  {
    Adapter adapter;
    adapter.config["target_modules"] = {"o_proj"};
    says(adapter.refusal(), "corrupt", "does not target");
  }
  {
    Adapter adapter;
    adapter.tensors.push_back(
        {Adapter::named("model._orig_mod.layers.0.q_proj.lora_A.weight"), {2, 4}});
    says(adapter.refusal(), "corrupt", "comes twice");
  }
  {
    // Two modules of the adapter are one tensor of the base.
    Adapter adapter;
    for (const char* const part : {".lora_A.weight", ".lora_B.weight"}) {
      adapter.tensors.push_back(
          {Adapter::named("model.language_model.layers.0.q_proj") + part,
           part[6] == 'A' ? std::vector<std::int64_t>{2, 4} : std::vector<std::int64_t>{8, 2}});
    }
    says(adapter.refusal(), "corrupt", "updated twice");
  }
}

TEST_CASE("an adapter of another model is refused") {
  {
    Adapter adapter;
    adapter.base.erase(adapter.base.begin() + 1);
    says(adapter.refusal(), "invalid", "which the base model does not have");
  }
  {
    Adapter adapter;
    adapter.tensors.push_back({Adapter::named("model.norm.bias"), {4}});
    says(adapter.refusal(), "invalid", "which the base model does not have");
  }
  {
    Adapter adapter;
    adapter.config["modules_to_save"] = {"lm_head"};
    adapter.tensors.push_back({Adapter::named("lm_head.weight"), {7, 4}});
    says(adapter.refusal(), "invalid", "resized vocabulary");
  }
  {
    // Two tensors of the base have the name that an adapter of another generation asks for.
    Adapter adapter;
    adapter.base = {{"model.layers.0.q_proj.weight", {8, 4}},
                    {"language_model.layers.0.q_proj.weight", {8, 4}}};
    for (Tensor& tensor : adapter.tensors) {
      tensor.name = "base_model.model.transformer" + tensor.name.substr(22);
    }
    says(adapter.refusal(), "invalid", "could be");
  }
}

TEST_CASE("an update of one of two tied tensors is refused: a merge would change both") {
  const auto with_update_of = [](Adapter& adapter, const std::string& module) {
    adapter.config.erase("target_modules");
    adapter.tensors = {{Adapter::named(module + ".lora_embedding_A"), {2, 6}},
                       {Adapter::named(module + ".lora_embedding_B"), {4, 2}}};
  };
  {
    Adapter adapter;  // tied because no head is stored
    adapter.base.pop_back();
    with_update_of(adapter, "model.embed_tokens");
    says(adapter.refusal(), "unsupported", "ties to its output head");
  }
  {
    Adapter adapter;  // tied because config.json says so
    adapter.base_config["text_config"] = {{"tie_word_embeddings", true}};
    with_update_of(adapter, "model.embed_tokens");
    says(adapter.refusal(), "unsupported", "ties to its output head");
  }
  {
    Adapter adapter;
    with_update_of(adapter, "model.embed_tokens");
    CHECK(adapter.refusal() == "accepted");
  }
  {
    Adapter adapter;
    adapter.base.pop_back();
    adapter.tensors = {{Adapter::named("lm_head.lora_A.weight"), {2, 4}},
                       {Adapter::named("lm_head.lora_B.weight"), {6, 2}}};
    adapter.config.erase("target_modules");
    says(adapter.refusal(), "unsupported", "ties to its embedding");
  }
  {
    Adapter adapter;
    adapter.base.pop_back();
    adapter.config["modules_to_save"] = {"embed_tokens"};
    adapter.tensors.push_back({Adapter::named("model.embed_tokens.weight"), {6, 4}});
    says(adapter.refusal(), "unsupported", "ties the two");
    adapter.tensors.push_back({Adapter::named("lm_head.weight"), {6, 4}});
    CHECK(adapter.refusal() == "accepted");
  }
}

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
    says(adapter.refusal(), "corrupt", std::string(key) == "peft_type" ? "LOHA" : key);
  }
  for (const char* const key :
       {"lora_magnitude_vector", "lora_B.bias", "lora_A.default.weight", "lora_E"}) {
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
  says(adapter.refusal(), "corrupt", "(?i)q_proj");
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

TEST_CASE("the base model is found where the configuration says, never by a relative path") {
  Adapter adapter;
  adapter.write();
  const RealFileSystem files;
  const std::string dir = adapter.scratch.at("checkpoint-5");
  CHECK(adapter_base(files, dir, "").value() == adapter.scratch.at("base"));
  CHECK(adapter_base(files, dir, adapter.scratch.path()).value() == adapter.scratch.path());
  for (const char* const path : {"../base", "./base", "a/b/c", "", "..", "-x"}) {
    adapter.config["base_model_name_or_path"] = path;
    adapter.write();
    const auto found = adapter_base(files, dir, "");
    INFO(path);
    REQUIRE_FALSE(found.has_value());
    CHECK(found.error().message.find("evaluate.base_model") != std::string::npos);
  }
  adapter.config["base_model_name_or_path"] = adapter.scratch.at("gone");
  adapter.write();
  CHECK(adapter_base(files, dir, "").error().code == ErrorCode::kNotFound);
  adapter.config["base_model_name_or_path"] = "no-such-org/no-such-model";
  adapter.write();
  const auto missing = adapter_base(files, dir, "");
  CHECK(missing.error().message.find("hf download no-such-org/no-such-model") != std::string::npos);
}

TEST_CASE("an adapter that names itself as its base does not loop") {
  Adapter adapter;
  adapter.config["base_model_name_or_path"] = adapter.scratch.at("checkpoint-5");
  says(adapter.refusal(), "unavailable", "holds no weights");
}

TEST_CASE("adapter names are split into module and part") {
  const auto part = [](const char* name) { return parse_adapter_name(name).value().part; };
  const auto target = [](const char* name) { return parse_adapter_name(name).value().target; };
  CHECK(part("base_model.model.a.b.lora_A.weight") == AdapterPart::kA);
  CHECK(target("base_model.model.a.b.lora_A.weight") == "a.b");
  CHECK(part("base_model.model.a.lora_embedding_B") == AdapterPart::kEmbeddingB);
  CHECK(target("base_model.model.a.base_layer.bias") == "a.bias");
  CHECK(target("base_model.model._orig_mod.a._checkpoint_wrapped_module.b.weight") == "a.b.weight");
  CHECK(shared_name("model.language_model.layers.0.q") == "layers.0.q");
  CHECK(shared_name("language_model.model.layers.0.q") == "layers.0.q");
  CHECK(shared_name("model.visual.blocks.0.model.q") == "visual.blocks.0.model.q");
  CHECK(shared_name("language_model.lm_head.weight") == "lm_head.weight");
}
