#include "store/checkpoint/merge.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "store/checkpoint/merge_staging.h"
#include "store/checkpoint/safetensors.h"
#include "tests/unit/checkpoint/support.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

/// /run/checkpoint-5 and -6: "a" [2,2] float32, "b" [3] int64, "c" [] float32.
class Run {
 public:
  Run() : files(clock) {
    put(5, {1, 2, 3, 4}, 10);
    put(6, {3, 4, 5, 8}, 20);
  }
  void put(int step, const std::vector<float>& a, std::int64_t b) {
    const std::string data =
        bytes_of<std::int64_t>({b, b, b}) + bytes_of(a) + bytes_of<float>({0.5F});
    files.put_file(folder(step) + "/model.safetensors",
                   safetensors_bytes(R"({"b":{"dtype":"I64","shape":[3],"data_offsets":[0,24]},)"
                                     R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[24,40]},)"
                                     R"("c":{"dtype":"F32","shape":[],"data_offsets":[40,44]}})",
                                     data));
    files.put_file(folder(step) + "/config.json", R"({"dtype":"float32","hidden_size":2})");
    files.put_file(folder(step) + "/tokenizer.json", "{}");
    files.put_file(folder(step) + "/optimizer.pt", "not copied");
  }
  static std::string folder(int step) { return "/run/checkpoint-" + std::to_string(step); }
  MergeRequest request(const std::vector<int>& steps = {5}) {
    MergeRequest request;
    for (const int step : steps) {
      request.plans.push_back(make_plan(files, folder(step), WeightsKind::kRegular).value());
      request.source_dirs.push_back(folder(step));
    }
    request.output_dir = "/out/merged";
    request.threads = 1;
    return request;
  }
  std::string merged(std::string_view name) {
    const auto plan = make_plan(files, "/out/merged", WeightsKind::kRegular);
    REQUIRE(plan.has_value());
    return tensor_of(files, *plan, name);
  }

  test::FakeClock clock;
  test::MemoryFileSystem files;
};

const std::vector<std::string> kMergedTree = {"merged/", "merged/config.json",
                                              "merged/model.safetensors", "merged/tokenizer.json"};

}  // namespace

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

TEST_CASE("nothing is written into checkpoints, nor where a trainer takes it for one") {
  Run run;
  run.files.put_file("/full/x", "mine");
  for (const char* place : {"/run/checkpoint-5", "/run/checkpoint-5/merged",
                            "/run/checkpoint-6/a/b", "/run/checkpoint-5-merged",
                            "/run/checkpoint-best", "/run/checkpoints/5", "/run", "/full"}) {
    INFO(place);
    MergeRequest request = run.request();
    request.output_dir = place;
    const auto before = run.files.tree();

    CHECK(merge(run.files, request).error().code == ErrorCode::kInvalidArgument);
    CHECK(run.files.tree() == before);
  }
}

TEST_CASE("a name that begins with checkpoint is fine where no trainer is") {
  Run run;
  MergeRequest request = run.request();
  request.output_dir = "/elsewhere/checkpoint-5-merged";

  CHECK(merge(run.files, request).has_value());
}

TEST_CASE("too little free space is told before anything is written") {
  Run run;
  run.files.set_free_bytes(1000);

  const auto report = merge(run.files, run.request());

  CHECK(report.error().code == ErrorCode::kIo);
  CHECK(report.error().message.find("--output_dir") != std::string::npos);
  CHECK(plan_merge(run.files, run.request()).error().code == ErrorCode::kIo);
  CHECK(run.files.count("create") == 0);
  CHECK(run.files.tree("/out").empty());
}

TEST_CASE("a merge that is cancelled leaves nothing") {
  Run run;
  const std::atomic<bool> cancelled{true};
  MergeRequest request = run.request();
  request.cancelled = &cancelled;

  CHECK(merge(run.files, request).error().code == ErrorCode::kCancelled);
  CHECK(run.files.tree("/out").empty());
}

TEST_CASE("a result that was being replaced when its merge was killed is put back") {
  const pid_t killed = ::fork();
  if (killed == 0) ::_exit(0);
  ::waitpid(killed, nullptr, 0);
  Run run;
  MergeStaging staging(run.files, "/out/regular");
  const std::string realm = staging.path().substr(staging.path().rfind('-'));
  const std::string left = "/out/.evalcar-merge-regular." + std::to_string(killed) + realm;
  run.files.put_file(left + ".old/model.safetensors", "the last whole result");

  REQUIRE(staging.make().has_value());
  CHECK(run.files.content("/out/regular/model.safetensors") == "the last whole result");
  CHECK_FALSE(run.files.exists(left + ".old"));
}

TEST_CASE("a source that is rewritten while it is read is never published") {
  Run run;
  const MergeRequest request = run.request();
  bool rewritten = false;
  run.files.on_call([&](const test::Call& call) {
    if (rewritten || call.operation != "create") return;
    rewritten = true;
    run.clock.advance(std::chrono::seconds(1));
    run.put(5, {9, 9, 9, 9}, 9);
  });

  CHECK(merge(run.files, request).error().code == ErrorCode::kUnavailable);
  CHECK(rewritten);
  CHECK(run.files.tree("/out").empty());
}

TEST_CASE("whichever call fails, the output is whole or absent and nothing is left beside it") {
  std::size_t failed = 0;
  for (std::size_t n = 1; n < 200; ++n) {
    INFO(n);
    Run run;
    const MergeRequest request = run.request();
    run.files.reset_calls();
    run.files.fail_call(n, EIO);

    const auto report = merge(run.files, request);

    run.files.fail_call(0, 0);
    const auto tree = run.files.tree("/out");
    CHECK((tree.empty() || tree == kMergedTree));
    if (report.has_value()) CHECK(tree == kMergedTree);
    failed += report.has_value() ? 0 : 1;
    if (run.files.calls().size() < n) break;
  }
  CHECK(failed > 20);
}

TEST_CASE(
    "whichever call of a replacement fails, the old output or the new one is whole in place") {
  std::size_t failed = 0;
  for (std::size_t n = 1; n < 400; ++n) {
    INFO(n);
    Run run;
    REQUIRE(merge(run.files, run.request()).has_value());
    MergeRequest again = run.request({6});
    again.replace_output = true;
    run.files.reset_calls();
    run.files.fail_call(n, EIO);

    const auto report = merge(run.files, again);

    run.files.fail_call(0, 0);
    REQUIRE(run.files.exists("/out/merged/model.safetensors"));
    const auto a = run.merged("a");
    const bool is_new = a == bytes_of<float>({3, 4, 5, 8});
    CHECK((is_new || a == bytes_of<float>({1, 2, 3, 4})));
    if (report.has_value()) CHECK(is_new);
    failed += report.has_value() ? 0 : 1;
    if (run.files.calls().size() < n) break;
    // What a failed removal left is gone with the next one.
    REQUIRE(merge(run.files, again).has_value());
    CHECK(run.files.tree("/out") == kMergedTree);
  }
  CHECK(failed > 20);
}

TEST_CASE("a replacement killed at any call loses neither output, and the next one cleans up") {
  for (std::size_t n = 1; n < 400; ++n) {
    INFO(n);
    Run run;
    REQUIRE(merge(run.files, run.request()).has_value());
    MergeRequest again = run.request({6});
    again.replace_output = true;
    run.files.reset_calls();
    run.files.die_at_call(n);

    const bool done = merge(run.files, again).has_value();

    run.files.die_at_call(0);
    if (done && run.files.calls().size() < n) break;
    bool whole = run.files.exists("/out/merged/model.safetensors");
    for (const std::string& path : run.files.tree("/out"))
      whole = whole || path.ends_with(".old/model.safetensors");
    CHECK(whole);
    REQUIRE(merge(run.files, again).has_value());
    CHECK(run.files.tree("/out") == kMergedTree);
    CHECK(run.merged("a") == bytes_of<float>({3, 4, 5, 8}));
  }
}

TEST_CASE(
    "a process killed at any call leaves no part under the target's name, and the next one cleans "
    "up") {
  for (std::size_t n = 1; n < 200; ++n) {
    INFO(n);
    Run run;
    const MergeRequest request = run.request();
    run.files.reset_calls();
    run.files.die_at_call(n);

    const bool done = merge(run.files, request).has_value();

    run.files.die_at_call(0);
    if (run.files.exists("/out/merged")) {
      CHECK(run.merged("a") == bytes_of<float>({1, 2, 3, 4}));
      continue;
    }
    CHECK_FALSE(done);
    REQUIRE(merge(run.files, request).has_value());
    CHECK(run.files.tree("/out") == kMergedTree);
  }
}

TEST_CASE(
    "in a mount point files move one by one, config.json last, and a kill leaves no half model") {
  const auto mount = [](Run& run) {
    run.files.put_file(Run::folder(5) + "/qformer_tokenizer/vocab.txt", "of a processor's part");
    run.files.put_directory("/out/merged");
    run.files.put_file("/proc/self/mountinfo", "30 1 8:1 / /out/merged rw - ext4 /dev/sda1 rw\n");
  };
  std::vector<std::string> whole = kMergedTree;
  whole.insert(whole.end() - 1,
               {"merged/qformer_tokenizer/", "merged/qformer_tokenizer/vocab.txt"});
  std::size_t died = 0;
  for (const bool dies : {false, true}) {
    for (std::size_t n = 1; n < 400; ++n) {
      INFO(n);
      Run run;
      mount(run);
      const MergeRequest request = run.request();
      run.files.reset_calls();
      dies ? run.files.die_at_call(n) : run.files.fail_call(n, EIO);

      const auto report = merge(run.files, request);
      const std::size_t calls = run.files.calls().size();

      run.files.die_at_call(0);
      run.files.fail_call(0, 0);
      REQUIRE(run.files.exists("/out/merged"));
      const bool looks_whole = run.files.exists("/out/merged/config.json");
      if (looks_whole) CHECK(run.merged("a") == bytes_of<float>({1, 2, 3, 4}));
      if (!dies && !report.has_value() && !looks_whole) {
        CHECK(run.files.tree("/out") == std::vector<std::string>{"merged/"});
      }
      if (report.has_value()) CHECK(run.files.tree("/out") == whole);
      if (dies && !report.has_value()) {
        ++died;
        const auto again = merge(run.files, request);
        // Killed at the very end, when all was there: that is not ours to replace.
        CHECK((again.has_value() || looks_whole));
        if (again.has_value()) CHECK(run.files.tree("/out") == whole);
      }
      if (calls < n) break;
    }
  }
  CHECK(died > 20);
}

TEST_CASE("in a mount point the weights' names are on the disk before config.json is there") {
  Run run;
  run.files.put_directory("/out/merged");
  run.files.put_file("/proc/self/mountinfo", "30 1 8:1 / /out/merged rw - ext4 /dev/sda1 rw\n");
  run.files.reset_calls();
  REQUIRE(merge(run.files, run.request()).has_value());

  // What a power cut leaves of names that were not synced, and in which order, nobody knows.
  bool weights_moved = false;
  bool synced = false;
  bool config_moved = false;
  for (const auto& call : run.files.calls()) {
    if (call.operation == "sync_directory" && call.path == "/out/merged") synced = weights_moved;
    if (call.operation != "rename") continue;
    if (call.path.ends_with("/model.safetensors")) weights_moved = true;
    if (!call.path.ends_with("/config.json")) continue;
    CHECK(synced);
    config_moved = true;
  }
  CHECK(config_moved);
}

TEST_CASE("an empty folder is filled where nothing can be made beside it") {
  Run run;
  run.files.put_directory("/out/merged");
  const MergeRequest request = run.request();
  run.files.fail_operation("make_directory", EACCES);

  REQUIRE(merge(run.files, request).has_value());

  CHECK(run.files.tree("/out") == kMergedTree);
}

TEST_CASE("what somebody else has in a mount point is never taken for ours") {
  Run run;
  run.files.put_file("/out/merged/mine", "x");
  run.files.put_file("/proc/self/mountinfo", "30 1 8:1 / /out/merged rw - ext4 /dev/sda1 rw\n");

  CHECK(merge(run.files, run.request()).error().code == ErrorCode::kInvalidArgument);
  CHECK(run.files.content("/out/merged/mine") == "x");
}

TEST_CASE("after a power cut a merge that was reported is there, whole") {
  for (const auto names : {test::UnsyncedNames::kDropped, test::UnsyncedNames::kKept}) {
    Run run;
    REQUIRE(merge(run.files, run.request()).has_value());
    // the folder around the target was made by the merge too
    run.files.power_cut(names);
    REQUIRE(run.files.exists("/out/merged/model.safetensors"));
    CHECK(run.merged("a") == bytes_of<float>({1, 2, 3, 4}));
  }
}

TEST_CASE("our own output is replaced, anybody else's is not") {
  Run run;
  REQUIRE(merge(run.files, run.request()).has_value());
  MergeRequest again = run.request({6});

  CHECK(merge(run.files, again).error().code == ErrorCode::kInvalidArgument);
  again.replace_output = true;
  REQUIRE(merge(run.files, again).has_value());

  CHECK(run.merged("a") == bytes_of<float>({3, 4, 5, 8}));
  CHECK(run.files.tree("/out") == kMergedTree);
}
