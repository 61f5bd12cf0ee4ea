// Hostile and contradictory adapters. That good ones are merged to PEFT's bits is shown against
// PEFT itself (tests/parity/checkpoint/test_lora.py).
#include <catch2/catch_test_macros.hpp>

#include "store/checkpoint/adapter_base.h"
#include "store/checkpoint/averaged.h"
#include "store/checkpoint/lora_names.h"
#include "store/checkpoint/tied_names.h"
#include "tests/unit/checkpoint/lora_files.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

void add_update_of(Adapter& adapter, const std::string& module, bool embedding) {
  adapter.tensors.push_back(
      {Adapter::named(module + (embedding ? ".lora_embedding_A" : ".lora_A.weight")),
       embedding ? std::vector<std::int64_t>{2, 6} : std::vector<std::int64_t>{2, 4}});
  adapter.tensors.push_back(
      {Adapter::named(module + (embedding ? ".lora_embedding_B" : ".lora_B.weight")),
       embedding ? std::vector<std::int64_t>{4, 2} : std::vector<std::int64_t>{6, 2}});
}

/// The only one.
void with_update_of(Adapter& adapter, const std::string& module, bool embedding) {
  adapter.config.erase("target_modules");
  adapter.tensors.clear();
  add_update_of(adapter, module, embedding);
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

TEST_CASE("the average of adapters is that of their merged weights; the base is no part of it") {
  Adapter first;
  first.write();
  Adapter second;
  second.config["base_model_name_or_path"] = first.scratch.at("base");
  second.tensors[1].value = 9;
  second.write();
  const auto move_in = [&](const Adapter& adapter, const std::string& name) {
    for (const char* const file : {"adapter_model.safetensors", "adapter_config.json"}) {
      const auto bytes =
          read_file(RealFileSystem(), adapter.scratch.at("checkpoint-5/") + file, 1 << 20);
      first.scratch.write("average/members/" + name + "/" + file, bytes.value());
      if (name == "b") first.scratch.write(std::string("average/") + file, bytes.value());
    }
  };
  move_in(first, "a");
  move_in(second, "b");
  first.scratch.write("average/members.json", members_json(std::vector<std::string>{"a", "b"}));
  const RealFileSystem files;
  const std::string dir = first.scratch.at("average");

  const auto report = inspect_layout(files, dir);
  const auto plan = make_plan(files, dir, WeightsKind::kAverage);

  REQUIRE(report.has_value());
  INFO(report->kinds[0].reason);
  CHECK(report->kinds[0].completeness == Completeness::kComplete);
  CHECK(report->kinds[0].files == std::vector<std::string>{"members.json",
                                                           "members/a/adapter_model.safetensors",
                                                           "members/b/adapter_model.safetensors"});
  REQUIRE(plan.has_value());
  const auto reader = PlanReader::open(files, *plan);
  REQUIRE(reader.has_value());
  const TensorPlan* const updated = plan->find("model.layers.0.q_proj.weight");
  REQUIRE(updated != nullptr);
  // 1 + 4 / 2 · (2 · 0.5 · B), with B = 3 and B = 9
  CHECK(read_tensor(*reader, *plan, static_cast<std::size_t>(updated - plan->tensors.data())) ==
        bytes_of(std::vector<float>(32, (7.0F + 19.0F) / 2)));
  const TensorPlan* const kept = plan->find("model.layers.0.o_proj.weight");
  REQUIRE(kept != nullptr);
  CHECK(read_tensor(*reader, *plan, static_cast<std::size_t>(kept - plan->tensors.data())) ==
        bytes_of(std::vector<float>(16, 1.0F)));
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

TEST_CASE("what changes one of two tied weights changes both, but for a copy that is trained") {
  const auto is_updated = [](const Plan& plan, const char* name) {
    const TensorPlan* const tensor = plan.find(name);
    return tensor != nullptr && tensor->update != nullptr;
  };
  for (const bool embedding : {true, false}) {
    Adapter adapter;  // both are stored, and config.json ties them
    adapter.base_config["text_config"] = {{"tie_word_embeddings", true}};
    with_update_of(adapter, embedding ? "model.embed_tokens" : "lm_head", embedding);
    const auto plan = adapter.plan();
    REQUIRE(plan.has_value());
    CHECK(is_updated(*plan, "model.embed_tokens.weight"));
    CHECK(is_updated(*plan, "lm_head.weight"));

    adapter.base.pop_back();  // the embedding alone is
    const auto alone = adapter.plan();
    REQUIRE(alone.has_value());
    CHECK(is_updated(*alone, "model.embed_tokens.weight"));
    CHECK(alone->find("lm_head.weight") == nullptr);
  }
  {
    Adapter adapter;  // not tied
    with_update_of(adapter, "model.embed_tokens", true);
    const auto plan = adapter.plan();
    REQUIRE(plan.has_value());
    CHECK_FALSE(is_updated(*plan, "lm_head.weight"));
    adapter.base.pop_back();  // nor is there a head
    CHECK(adapter.refusal() == "accepted");
    with_update_of(adapter, "lm_head", false);
    says(adapter.refusal(), "invalid", "which the base model does not have");
  }
  {
    Adapter adapter;  // a copy: the head keeps what the embedding was
    adapter.base.pop_back();
    adapter.base_config["tie_word_embeddings"] = true;
    adapter.base_config["architectures"] = {"XForCausalLM"};
    adapter.config["modules_to_save"] = {"embed_tokens"};
    adapter.tensors.push_back({Adapter::named("model.embed_tokens.weight"), {6, 4}});
    const auto plan = adapter.plan();
    REQUIRE(plan.has_value());
    REQUIRE(plan->find("lm_head.weight") != nullptr);
    CHECK(plan->find("lm_head.weight")->pieces[0].file !=
          plan->find("model.embed_tokens.weight")->pieces[0].file);
    adapter.base_config["architectures"] = {"XForTokenClassification"};
    const auto headless = adapter.plan();
    REQUIRE(headless.has_value());
    CHECK(headless->find("lm_head.weight") == nullptr);
    adapter.base_config.erase("architectures");  // is there a head at all?
    says(adapter.refusal(), "unsupported", "cannot be told what the output head");
    adapter.tensors.push_back({Adapter::named("lm_head.weight"), {6, 4}});
    CHECK(adapter.refusal() == "accepted");
  }
  {
    Adapter adapter;  // which of two is tied?
    adapter.base_config["tie_word_embeddings"] = true;
    adapter.base.insert(adapter.base.begin(), {"decoder.embed_tokens.weight", {6, 4}});
    with_update_of(adapter, "model.embed_tokens", true);
    says(adapter.refusal(), "unsupported", "cannot be told");
  }
}

TEST_CASE("what a class ties to more than one embedding and its head is refused") {
  struct Case {
    const char* architecture;
    std::vector<const char*> base;  // beside the adapter's own
    const char* module;
    bool copied;
    bool accepted;
  };
  constexpr const char* kEntities = "luke.entity_embeddings.entity_embeddings";
  constexpr const char* kViltWords = "vilt.embeddings.text_embeddings.word_embeddings";
  for (const Case& each : std::vector<Case>{
           // The entities' head keeps the old ones, and has no tensor here.
           {"LukeForMaskedLM", {kEntities}, kEntities, true, false},
           {"LukeForMaskedLM", {kEntities}, kEntities, false, true},
           {"LukeForMaskedLM", {kEntities, "entity_predictions.decoder"}, kEntities, false, false},
           {"ViltForMaskedLM", {kViltWords, "mlm_score.decoder"}, kViltWords, false, false},
           {"ViltForMaskedLM",
            {kViltWords, "mlm_score.decoder"},
            "mlm_score.decoder",
            false,
            false},
           {"RwkvForCausalLM", {"rwkv.embeddings", "head"}, "head", false, false},
           {"RwkvForCausalLM", {"rwkv.embeddings", "head"}, "rwkv.embeddings", false, false},
           {"DeepseekV4ForCausalLM", {"model.embed_tokens", "head"}, "lm_head", false, false},
           {"FSMTForConditionalGeneration",
            {"model.decoder.embed_tokens", "model.encoder.embed_tokens",
             "model.decoder.output_projection"},
            "model.decoder.output_projection",
            false,
            false},
           {"BertForMaskedLM",
            {"bert.embeddings.word_embeddings", "cls.predictions.decoder"},
            "cls.predictions.decoder",
            false,
            true}}) {
    INFO(each.architecture << ", " << each.module);
    Adapter adapter;
    std::erase_if(adapter.base, [](const auto& tensor) {
      return is_input_embedding(tensor.name) || is_output_head(tensor.name);
    });
    for (const char* const module : each.base)
      adapter.base.push_back({std::string(module) + ".weight", {6, 4}});
    adapter.base_config["tie_word_embeddings"] = true;
    adapter.base_config["architectures"] = {each.architecture};
    if (each.copied) {
      adapter.config["modules_to_save"] = {each.module};
      adapter.tensors.push_back({Adapter::named(std::string(each.module) + ".weight"), {6, 4}});
    } else {
      with_update_of(adapter, each.module,
                     each.module != each.base.back() || each.base.size() == 1);
    }
    if (each.accepted) {
      CHECK(adapter.refusal() == "accepted");
    } else {
      says(adapter.refusal(), "unsupported",
           "which other tensors of the base model are tied to it");
    }
    adapter.base_config["tie_word_embeddings"] = false;
    if (each.base.size() > 1 && each.module != std::string_view("lm_head"))
      CHECK(adapter.refusal() == "accepted");
  }
}

TEST_CASE("the output head of a class is called as transformers calls it, or is not known") {
  const auto head = [](const char* architecture, const char* embedding) {
    const auto found = output_head_of(architecture, embedding);
    if (!found) return std::string("not known");
    return found->weight.empty() ? std::string("none") : found->weight;
  };
  CHECK(head("GPT2LMHeadModel", "wte.weight") == "lm_head.weight");  // as on the hub
  CHECK(head("Qwen2VLForConditionalGeneration", "model.embed_tokens.weight") == "lm_head.weight");
  CHECK(head("LlavaForConditionalGeneration", "language_model.model.embed_tokens.weight") ==
        "language_model.lm_head.weight");
  CHECK(head("XLMRobertaModel", "embeddings.word_embeddings.weight") == "none");
  CHECK(head("LlamaForTokenClassification", "model.embed_tokens.weight") == "none");
  // Not called lm_head.
  CHECK(head("TrOCRForCausalLM", "model.decoder.embed_tokens.weight") ==
        "output_projection.weight");
  CHECK(head("TrOCRForCausalLM", "embed_tokens.weight") == "not known");
  CHECK(head("InternVLChatModel", "language_model.model.embed_tokens.weight") == "not known");
  CHECK(head("ChatGLMForConditionalGeneration", "transformer.embedding.word_embeddings.weight") ==
        "not known");
  CHECK(head("BertForMaskedLM", "embeddings.word_embeddings.weight") == "not known");
  CHECK(head("", "model.embed_tokens.weight") == "not known");
}

TEST_CASE("what modules_to_save has replaced is no tensor of the model, though it is stored, too") {
  Adapter adapter;
  adapter.config["modules_to_save"] = {"lm_head"};
  adapter.tensors.push_back({Adapter::named("lm_head.original_module.weight"), {6, 4}, 5});
  adapter.tensors.push_back({Adapter::named("lm_head.modules_to_save.default.weight"), {6, 4}, 9});

  const auto plan = adapter.plan();

  REQUIRE(plan.has_value());
  REQUIRE(plan->tensors.size() == 4);
  const RealFileSystem files;
  const auto reader = PlanReader::open(files, *plan);
  REQUIRE(reader.has_value());
  const TensorPlan* const head = plan->find("lm_head.weight");
  REQUIRE(head != nullptr);
  CHECK(read_tensor(*reader, *plan, static_cast<std::size_t>(head - plan->tensors.data())) ==
        bytes_of(std::vector<float>(24, 9)));
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
  CHECK(part("base_model.model.a.b.lora_B.default.weight") == AdapterPart::kB);
  CHECK(target("base_model.model.a.b.lora_B.default.weight") == "a.b");
  CHECK(target("base_model.model.a.modules_to_save.default.weight") == "a.weight");
  CHECK(part("base_model.model.a.lora_embedding_B") == AdapterPart::kEmbeddingB);
  CHECK(target("base_model.model.a.base_layer.bias") == "a.bias");
  CHECK(target("base_model.model._orig_mod.a._checkpoint_wrapped_module.b.weight") == "a.b.weight");
  CHECK(target("module.base_model.model.module.weight") == "module.weight");
  CHECK(shared_name("model.language_model.layers.0.q") == "layers.0.q");
  CHECK(shared_name("language_model.model.layers.0.q") == "layers.0.q");
  CHECK(shared_name("model.visual.blocks.0.model.q") == "visual.blocks.0.model.q");
  CHECK(shared_name("language_model.lm_head.weight") == "lm_head.weight");
  CHECK(shared_name("vision_tower.vision_model.head.q") == "vision_tower.head.q");
  CHECK(shared_name("model.vision_tower.head.q") == "vision_tower.head.q");
}

TEST_CASE("an update of a head goes to the tied embedding only where the model has such a head") {
  Adapter adapter;
  adapter.base.pop_back();  // the embedding alone is stored
  adapter.base_config["tie_word_embeddings"] = true;
  with_update_of(adapter, "lm_head", false);
  add_update_of(adapter, "mtp.lm_head", false);
  says(adapter.refusal(), "invalid", "which the base model does not have");  // one of the two

  adapter.base_config["architectures"] = {"XForCausalLM"};  // its head is known
  says(adapter.refusal(), "invalid", "\"mtp.lm_head\", which the base model does not have");
  adapter.tensors.resize(adapter.tensors.size() - 2);
  CHECK(adapter.refusal() == "accepted");
  adapter.base_config["architectures"] = {"Qwen2Model"};  // published without a head
  CHECK(adapter.refusal() == "accepted");
}

TEST_CASE("a tied weight is updated by its two modules once each, whatever they are called") {
  Adapter adapter;
  adapter.base_config["tie_word_embeddings"] = true;
  with_update_of(adapter, "lm_head", false);
  add_update_of(adapter, "model.embed_tokens", true);
  CHECK(adapter.refusal() == "accepted");
  add_update_of(adapter, "model.language_model.embed_tokens", true);
  says(adapter.refusal(), "corrupt", "another one of its kind has updated");
}
