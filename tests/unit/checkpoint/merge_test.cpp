#include "store/checkpoint/merge.h"

#include <limits>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/unit/checkpoint/merge_run.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

TEST_CASE(
    "a merged folder holds the tensors, the configuration and the tokenizer, and nothing else") {
  Run run;

  const auto report = merge(run.files, run.request());

  REQUIRE(report.has_value());
  CHECK(report->tensor_bytes == 44);
  CHECK(run.files.tree("/out") == kMergedTree);
  CHECK(run.merged("a") == bytes_of<float>({1, 2, 3, 4}));
  CHECK(run.merged("b") == bytes_of<std::int64_t>({10, 10, 10}));
  CHECK(*run.files.content("/out/merged/config.json") == R"({"dtype":"float32","hidden_size":2})");
}

TEST_CASE("a limit on the files' size gives numbered files and an index") {
  Run run;
  MergeRequest request = run.request();
  request.max_shard_bytes = 25;

  const auto report = merge(run.files, request);

  REQUIRE(report.has_value());
  REQUIRE(report->files.size() == 2);
  CHECK(report->files[0].name == "model-00001-of-00002.safetensors");
  const auto index =
      nlohmann::json::parse(*run.files.content("/out/merged/model.safetensors.index.json"));
  CHECK(index["metadata"]["total_size"] == 44);
  CHECK(index["weight_map"]["b"] == "model-00001-of-00002.safetensors");
  CHECK(index["weight_map"]["c"] == "model-00002-of-00002.safetensors");
  CHECK(run.merged("a") == bytes_of<float>({1, 2, 3, 4}));
}

TEST_CASE("the mean of checkpoints is taken of floats, and the last one's integers are kept") {
  Run run;

  REQUIRE(merge(run.files, run.request({5, 6})).has_value());

  CHECK(run.merged("a") == bytes_of<float>({2, 3, 4, 6}));
  CHECK(run.merged("b") == bytes_of<std::int64_t>({20, 20, 20}));
  CHECK(run.merged("c") == bytes_of<float>({0.5F}));
}

TEST_CASE("the mean of checkpoints takes the weight of each") {
  Run run;
  MergeRequest request = run.request({5, 6});
  request.weights = {1, 3};

  REQUIRE(merge(run.files, request).has_value());

  CHECK(run.merged("a") == bytes_of<float>({2.5F, 3.5F, 4.5F, 7}));
  CHECK(run.merged("b") == bytes_of<std::int64_t>({20, 20, 20}));
}

TEST_CASE("weights that are not one positive number a checkpoint are refused") {
  Run run;
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<double>& weights :
       {std::vector<double>{1}, {1, 2, 3}, {1, 0}, {1, -1}, {kNaN, 1}}) {
    MergeRequest request = run.request({5, 6});
    request.weights = weights;

    CHECK(merge(run.files, request).error().code == ErrorCode::kInvalidArgument);
  }
}

TEST_CASE("a configuration ties an embedding and a head only where they are equal") {
  const auto merged_config = [](const std::string& config, float head, bool untied) {
    Run run;
    run.files.put_file(
        "/run/checkpoint-7/model.safetensors",
        safetensors_bytes(
            R"({"lm_head.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
            R"("model.language_model.embed_tokens.weight":{"dtype":"F32","shape":[2],)"
            R"("data_offsets":[8,16]}})",
            bytes_of<float>({1, head, 1, 2})));
    run.files.put_file("/run/checkpoint-7/config.json", config);
    const auto report = merge(run.files, run.request({7}));
    REQUIRE(report.has_value());
    CHECK(report->untied == untied);
    return *run.files.content("/out/merged/config.json");
  };
  const std::string tied =
      R"({"model_type":"llava","tie_word_embeddings":true,"text_config":{"model_type":"llama",)"
      R"("tie_word_embeddings":true}})";
  const std::string loose = R"({"model_type":"llava","tie_word_embeddings":false})";

  CHECK(merged_config(tied, 2, false) == tied);
  CHECK(nlohmann::json::parse(merged_config(tied, 3, true)) ==
        nlohmann::json::parse(R"({"model_type":"llava","tie_word_embeddings":false,"text_config":)"
                              R"({"model_type":"llama","tie_word_embeddings":false}})"));
  CHECK(merged_config(loose, 3, false) == loose);
  // A configuration that says nothing may tie by the default of its class.
  CHECK(nlohmann::json::parse(merged_config(R"({"model_type":"llava"})", 3, true)) ==
        nlohmann::json::parse(loose));
  CHECK(merged_config("{}", 3, false) == "{}");
}

TEST_CASE("embeddings are compared with the head under the names that families give them") {
  struct Case {
    std::string embedding;
    std::string head;
    std::string model_type;
    bool untied;
  };
  for (const Case& each :
       {Case{"transformer.word_embeddings.weight", "lm_head.weight", "bloom", true},
        {"gpt_neox.embed_in.weight", "embed_out.weight", "gpt_neox", true},
        {"git.embeddings.word_embeddings.weight", "output.weight", "git", true},
        {"language_model.transformer.wte.weight", "language_model.lm_head.weight", "gpt2", false},
        {"model.embed_tokens.weight", "layers.0.output.weight", "llama", false},
        {"model.position_embeddings.weight", "lm_head.weight", "opt", false},
        {"model.embed_tokens.weight", "other.weight", "llama", false}}) {
    Run run;
    CAPTURE(each.embedding, each.head);
    // A further one that differs, too, or where nothing is compared.
    run.files.put_file(
        "/run/checkpoint-7/model.safetensors",
        safetensors_bytes(
            "{\"" + each.head + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},")" +
                each.embedding + R"(":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},)" +
                R"("zz.embed_tokens.weight":{"dtype":"F32","shape":[2],"data_offsets":[16,24]}})",
            bytes_of<float>({1, 2, 1, 3, each.untied ? 4.0F : 1.0F, 2})));
    run.files.put_file("/run/checkpoint-7/config.json",
                       R"({"model_type":")" + each.model_type + R"(","tie_word_embeddings":true})");

    const auto report = merge(run.files, run.request({7}));

    REQUIRE(report.has_value());
    CHECK(report->untied == each.untied);
  }
}

TEST_CASE("a head is tied as long as it equals one of several embeddings of its shape and dtype") {
  struct Case {
    std::string shape;  // of the second embedding
    std::vector<float> head;
    bool untied;
  };
  for (const Case& each : {Case{"[2]", {1, 2}, false},
                           {"[2]", {3, 4}, false},
                           {"[2]", {1, 4}, true},
                           {"[1,2]", {1, 2}, false},
                           {"[1,2]", {3, 4}, true}}) {
    Run run;
    CAPTURE(each.shape, each.head);
    std::vector<float> values = each.head;
    values.insert(values.end(), {1, 2, 3, 4});
    run.files.put_file(
        "/run/checkpoint-7/model.safetensors",
        safetensors_bytes(
            R"({"lm_head.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
            R"("model.embed_tokens.weight":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},)"
            R"("other.embed_tokens.weight":{"dtype":"F32","shape":)" +
                each.shape + R"(,"data_offsets":[16,24]}})",
            bytes_of<float>(values)));
    run.files.put_file("/run/checkpoint-7/config.json",
                       R"({"model_type":"llama","tie_word_embeddings":true})");

    const auto report = merge(run.files, run.request({7}));

    REQUIRE(report.has_value());
    CHECK(report->untied == each.untied);
  }
}

TEST_CASE("what a tie filled is written under its own name where the tie is given up") {
  const auto merged = [](float head, const std::string& config) {
    Run run;
    run.files.put_file(
        "/run/checkpoint-7/model.safetensors",
        safetensors_bytes(
            R"({"bert.embeddings.word_embeddings.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
            R"("cls.predictions.bias":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},)"
            R"("cls.predictions.decoder.weight":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})",
            bytes_of<float>({1, 2, 7, 1, head})));
    run.files.put_file("/run/checkpoint-7/config.json", config);
    const auto report = merge(run.files, run.request({7}));
    REQUIRE(report.has_value());
    const auto planned = make_plan(run.files, "/out/merged", WeightsKind::kRegular);
    REQUIRE(planned.has_value());
    if (planned->find("cls.predictions.decoder.bias") == nullptr) return false;
    CHECK(report->tensor_bytes == 24);
    CHECK(run.merged("cls.predictions.decoder.bias") == bytes_of<float>({7}));
    return true;
  };

  CHECK(merged(3, R"({"model_type":"bert","tie_word_embeddings":true})"));
  CHECK(merged(3, R"({"architectures":["BertForMaskedLM"]})"));
  CHECK_FALSE(merged(2, R"({"model_type":"bert","tie_word_embeddings":true})"));
  CHECK_FALSE(merged(3, R"({"model_type":"bert","tie_word_embeddings":false})"));
}

TEST_CASE("a flag that scales is kept, and that is reported") {
  const auto merged = [](const std::string& config) {
    Run run;
    run.files.put_file(
        "/run/checkpoint-7/model.safetensors",
        safetensors_bytes(R"({"lm_head.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                          R"("shared.weight":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                          bytes_of<float>({1, 2, 3, 4})));
    run.files.put_file("/run/checkpoint-7/config.json", config);
    const auto report = merge(run.files, run.request({7}));
    REQUIRE(report.has_value());
    CHECK_FALSE(report->untied);
    CHECK(*run.files.content("/out/merged/config.json") == config);
    return report->still_tied;
  };

  CHECK(merged(R"({"model_type":"t5","tie_word_embeddings":true})"));
  CHECK(merged(R"({"model_type":"t5"})"));
  CHECK_FALSE(merged(R"({"model_type":"t5","tie_word_embeddings":false})"));
}

TEST_CASE("only the flags of a head that differs are changed") {
  Run run;
  run.files.put_file(
      "/run/checkpoint-7/model.safetensors",
      safetensors_bytes(
          R"({"talker.model.embed_tokens.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
          R"("thinker.lm_head.weight":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
          R"("thinker.model.embed_tokens.weight":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})",
          bytes_of<float>({1, 2, 3, 4, 5})));
  run.files.put_file("/run/checkpoint-7/config.json",
                     R"({"talker_config":{"tie_word_embeddings":true},)"
                     R"("architectures":["Qwen2_5OmniForConditionalGeneration"],)"
                     R"("thinker_config":{"text_config":{"tie_word_embeddings":true}}})");

  REQUIRE(merge(run.files, run.request({7})).has_value());

  CHECK(nlohmann::json::parse(*run.files.content("/out/merged/config.json")) ==
        nlohmann::json::parse(
            R"({"talker_config":{"tie_word_embeddings":true},)"
            R"("architectures":["Qwen2_5OmniForConditionalGeneration"],"thinker_config":)"
            R"({"text_config":{"tie_word_embeddings":false},"tie_word_embeddings":false}})"));
}

TEST_CASE("a tensor with the name that safetensors keeps for itself is not written") {
  Run run;
  MergeRequest request = run.request();
  request.plans[0].tensors[0].name = "__metadata__";

  const auto report = merge(run.files, request);

  REQUIRE_FALSE(report.has_value());
  CHECK(report.error().code == ErrorCode::kUnsupported);
  CHECK(report.error().message.find("\"__metadata__\"") != std::string::npos);
  CHECK(run.files.tree("/out").empty());
}

TEST_CASE("a cast changes floats and the configuration's dtype, not integers") {
  Run run;
  MergeRequest request = run.request();
  request.dtype = DType::kBFloat16;

  REQUIRE(merge(run.files, request).has_value());

  CHECK(run.merged("a") == bytes_of<std::uint16_t>({0x3f80, 0x4000, 0x4040, 0x4080}));
  CHECK(run.merged("b") == bytes_of<std::int64_t>({10, 10, 10}));
  CHECK(nlohmann::json::parse(*run.files.content("/out/merged/config.json"))["dtype"] ==
        "bfloat16");
}

TEST_CASE("checkpoints with other tensors are not averaged") {
  Run run;
  run.files.put_file("/run/checkpoint-7/config.json", "{}");
  run.files.put_file(
      "/run/checkpoint-7/model.safetensors",
      safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"));

  CHECK(merge(run.files, run.request({5, 7})).error().code == ErrorCode::kInvalidArgument);
}
