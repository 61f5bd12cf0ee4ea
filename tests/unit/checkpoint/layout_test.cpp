#include "store/checkpoint/layout.h"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/plan.h"
#include "tests/unit/checkpoint/support.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

const std::string kOne = safetensors_bytes(
    R"({"a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})", bytes_of<std::int32_t>({7, 8}));
const std::string kTwo = safetensors_bytes(
    R"({"b":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})", bytes_of<std::int32_t>({9}));
constexpr const char* kIndex = "checkpoint-5/model.safetensors.index.json";

/// checkpoint-5 with two shards, an index, a configuration and a tokenizer.
void write_indexed(const ScratchFolder& scratch) {
  scratch.write("checkpoint-5/model-00001-of-00002.safetensors", kOne);
  scratch.write("checkpoint-5/model-00002-of-00002.safetensors", kTwo);
  scratch.write(kIndex, R"({"weight_map":{"a":"model-00001-of-00002.safetensors",)"
                        R"("b":"model-00002-of-00002.safetensors"}})");
  scratch.write("checkpoint-5/config.json", "{}");
  scratch.write("checkpoint-5/tokenizer.json", "{}");
  scratch.write("checkpoint-5/optimizer.pt", "x");
}

KindState regular_state(const ScratchFolder& scratch) {
  const RealFileSystem files;
  const auto report = inspect_layout(files, scratch.at("checkpoint-5"));
  if (!report.has_value()) {
    KindState state;
    state.reason = report.error().message;
    return state;
  }
  return report->kinds[0];
}

}  // namespace

TEST_CASE("only canonical integers are steps") {
  CHECK(step_of_name("checkpoint-0") == 0);
  CHECK(step_of_name("checkpoint-500") == 500);
  CHECK(step_of_name("checkpoint-9223372036854775807") == INT64_MAX);
  CHECK(step_of_name("step-7-done", "step-{step}-done") == 7);
  for (const char* name :
       {"checkpoint-", "checkpoint-0500", "checkpoint--5", "checkpoint-+5", "checkpoint-5e2",
        "checkpoint-9223372036854775808", "checkpoint-18446744073709551616",
        "checkpoint-500 (copy)", "checkpoint-500\n", "checkpoint-500-merged", "checkpoint-500.tmp",
        "tmp-checkpoint-500", "Checkpoint-500", "500", "", "checkpoint-5 "}) {
    INFO(name);
    CHECK_FALSE(step_of_name(name).has_value());
  }
  CHECK_FALSE(step_of_name("checkpoint-5", "no place").has_value());
}

TEST_CASE("a sharded Hugging Face checkpoint is complete, and its files are listed") {
  const ScratchFolder scratch;
  write_indexed(scratch);

  const RealFileSystem files;
  const auto report = inspect_layout(files, scratch.at("checkpoint-5/"));

  REQUIRE(report.has_value());
  CHECK(report->layout == Layout::kHuggingFace);
  CHECK(report->step == 5);
  REQUIRE(report->kinds.size() == 1);
  CHECK(report->kinds[0].completeness == Completeness::kComplete);
  CHECK(report->kinds[0].files == std::vector<std::string>{"model-00001-of-00002.safetensors",
                                                           "model-00002-of-00002.safetensors",
                                                           "model.safetensors.index.json",
                                                           "config.json", "tokenizer.json"});
}

TEST_CASE("the plan of a sharded checkpoint reads each tensor from its file") {
  const ScratchFolder scratch;
  write_indexed(scratch);
  const RealFileSystem files;

  const auto plan = make_plan(files, scratch.at("checkpoint-5"), WeightsKind::kRegular);

  REQUIRE(plan.has_value());
  const auto reader = PlanReader::open(files, *plan);
  REQUIRE(reader.has_value());
  CHECK(read_tensor(*reader, *plan, 0) == bytes_of<std::int32_t>({7, 8}));
  CHECK(read_tensor(*reader, *plan, 1) == bytes_of<std::int32_t>({9}));
  CHECK(plan->find("b")->shape == std::vector<std::int64_t>{1});
  CHECK(plan->find("c") == nullptr);
  const auto digests = hash_plan(files, *plan, 2, {});
  REQUIRE(digests.has_value());
  CHECK((*digests)[0].sha256 == sha256_hex(bytes_of<std::int32_t>({7, 8})));
}

TEST_CASE("a loss that is no number, as Python writes it, does not make a checkpoint incomplete") {
  std::string text = R"({"log": [{"loss": NaN, "a\"NaN": -Infinity}, Infinity], "n": "NaN"})";
  replace_non_finite(text);
  CHECK(text == R"({"log": [{"loss": 0  , "a\"NaN": -0       }, 0       ], "n": "NaN"})");

  const ScratchFolder scratch;
  write_indexed(scratch);
  scratch.write("checkpoint-5/trainer_state.json",
                R"({"log_history": [{"grad_norm": NaN}, {"loss": Infinity}], "global_step": 7})");
  const RealFileSystem files;
  const auto report = inspect_layout(files, scratch.at("checkpoint-5"));
  REQUIRE(report.has_value());
  CHECK(report->kinds[0].completeness == Completeness::kComplete);
  CHECK(report->step == 7);
}

TEST_CASE("the step is that of trainer_state.json where there is one") {
  const ScratchFolder scratch;
  write_indexed(scratch);
  scratch.write("checkpoint-5/trainer_state.json",
                R"({"log_history":[{"step":1}],"global_step":7})");
  const RealFileSystem files;

  CHECK(inspect_layout(files, scratch.at("checkpoint-5"))->step == 7);
}

TEST_CASE("a trainer's state that is too large to be read leaves the checkpoint complete") {
  const ScratchFolder scratch;
  write_indexed(scratch);
  const std::string state = "checkpoint-5/trainer_state.json";
  scratch.write(state, "{");
  std::filesystem::resize_file(scratch.at(state), std::uintmax_t{600} << 20U);  // takes no room
  const RealFileSystem files;
  const auto judged = [&] { return inspect_layout(files, scratch.at("checkpoint-5")).value(); };

  CHECK(judged().kinds[0].completeness == Completeness::kIncomplete);  // still being written

  std::ofstream(scratch.at(state), std::ios::app) << "\n}\n";
  CHECK(judged().kinds[0].completeness == Completeness::kComplete);
  CHECK(judged().step == 5);
}

TEST_CASE("what is missing or short makes a checkpoint incomplete, by name") {
  struct Case {
    const char* file;
    const char* content;  // nullptr: removed
    const char* named;
  };
  for (const Case& c :
       {Case{"config.json", nullptr, "config.json"}, Case{"config.json", "", "config.json"},
        Case{"config.json", R"({"a":)", "config.json"},
        Case{"model-00002-of-00002.safetensors", nullptr, "model-00002-of-00002.safetensors"},
        Case{"model-00002-of-00002.safetensors", "12345", "model-00002-of-00002.safetensors"},
        Case{"model.safetensors.index.json", nullptr, "index.json"},
        Case{"model.safetensors.index.json", R"({"weight_map":{"a")", "index.json"},
        Case{"trainer_state.json", R"({"global_step": 5)", "trainer_state.json"}}) {
    INFO(c.file);
    const ScratchFolder scratch;
    write_indexed(scratch);
    const std::string path = std::string("checkpoint-5/") + c.file;
    if (c.content == nullptr) {
      std::filesystem::remove(scratch.at(path));
    } else {
      scratch.write(path, c.content);
    }

    const KindState state = regular_state(scratch);

    CHECK(state.completeness == Completeness::kIncomplete);
    CHECK_FALSE(state.damaged);
    CHECK(state.files.empty());
    CHECK(state.reason.find(c.named) != std::string::npos);
    const RealFileSystem files;
    CHECK(make_plan(files, scratch.at("checkpoint-5"), WeightsKind::kRegular).error().code ==
          ErrorCode::kUnavailable);
  }
}

TEST_CASE("an index that disagrees with its shards is damage") {
  for (
      const char* map :
      {R"("a":"model-00002-of-00002.safetensors","b":"model-00002-of-00002.safetensors")",
       R"("a":"model-00001-of-00002.safetensors")",
       R"("a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors")",
       R"("a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","c":"model-00002-of-00002.safetensors")",
       R"("a":"../checkpoint-5/model-00001-of-00002.safetensors")"}) {
    INFO(map);
    const ScratchFolder scratch;
    write_indexed(scratch);
    scratch.write(kIndex, R"({"weight_map":{)" + std::string(map) + "}}");
    if (std::string_view(map) == R"("a":"model-00001-of-00002.safetensors")") {
      scratch.write("checkpoint-5/model-00001-of-00002.safetensors",
                    safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                      R"("extra":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                      "xy"));
    }

    const KindState state = regular_state(scratch);

    CHECK(state.completeness == Completeness::kIncomplete);
    CHECK(state.damaged);
    INFO(state.reason);
    CHECK(state.reason.find(".safetensors") != std::string::npos);
  }
}

TEST_CASE("whole weights beside a DCP were merged out of it, and do not take its place") {
  for (const char* const shards : {"pytorch_model_fsdp_0", "pytorch_ema_model_fsdp_0"}) {
    INFO(shards);
    const ScratchFolder scratch;
    write_indexed(scratch);
    const RealFileSystem files;
    const auto layout = [&] { return inspect_layout(files, scratch.at("checkpoint-5"))->layout; };
    std::filesystem::create_directory(scratch.at("checkpoint-5/" + std::string(shards)));
    CHECK(layout() == Layout::kHuggingFace);

    scratch.write("checkpoint-5/" + std::string(shards) + "/.metadata", "x");

    CHECK(layout() == Layout::kDcp);
  }
}

TEST_CASE("weights that are a FIFO, a folder, a device or a link out are refused at once") {
  const auto refused = [](auto&& make) {
    const ScratchFolder scratch;
    write_indexed(scratch);
    const std::string shard = scratch.at("checkpoint-5/model-00002-of-00002.safetensors");
    std::filesystem::remove(shard);
    make(scratch, shard);
    const KindState state = regular_state(scratch);
    return state.completeness == Completeness::kIncomplete && state.damaged;
  };
  CHECK(
      refused([](const auto&, const std::string& p) { REQUIRE(::mkfifo(p.c_str(), 0600) == 0); }));
  CHECK(refused([](const auto&, const std::string& p) { std::filesystem::create_directory(p); }));
  CHECK(refused(
      [](const auto&, const std::string& p) { std::filesystem::create_symlink("/dev/zero", p); }));
  CHECK(refused([](const ScratchFolder& s, const std::string& p) {
    s.write("elsewhere.safetensors", kTwo);
    std::filesystem::create_symlink(s.at("elsewhere.safetensors"), p);
  }));
  CHECK(refused([](const auto&, const std::string& p) {
    std::filesystem::create_symlink(p, p);  // a loop
  }));
}

TEST_CASE("a snapshot of a hub cache is read through its links") {
  const ScratchFolder scratch;
  scratch.write("models--o--n/blobs/111", kOne);
  scratch.write("models--o--n/blobs/222", "{}");
  std::filesystem::create_directories(scratch.at("models--o--n/snapshots/rev"));
  std::filesystem::create_symlink("../../blobs/111",
                                  scratch.at("models--o--n/snapshots/rev/model.safetensors"));
  std::filesystem::create_symlink("../../blobs/222",
                                  scratch.at("models--o--n/snapshots/rev/config.json"));
  const RealFileSystem files;

  CHECK(make_plan(files, scratch.at("models--o--n/snapshots/rev"), WeightsKind::kRegular)
            .has_value());
}

TEST_CASE("an empty folder is not a checkpoint yet, and a missing one is not found") {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch.at("checkpoint-5"));
  const RealFileSystem files;

  const auto empty = inspect_layout(files, scratch.at("checkpoint-5"));
  CHECK(empty.error().code == ErrorCode::kUnavailable);
  CHECK(empty.error().retryable);
  CHECK(inspect_layout(files, scratch.at("checkpoint-6")).error().code == ErrorCode::kNotFound);
}
