#include "store/protocol/messages.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>
#include <string>

using namespace evalcar;
using namespace evalcar::protocol;

namespace {

EvaluationSettings some_settings() {
  EvaluationSettings settings;
  settings.tasks = {"docvqa_val", "mmmu_val"};
  settings.data_dir = "/data";
  settings.limit = 0.5;
  settings.max_new_tokens = 7;
  return settings;
}

EvaluationResult some_result() {
  TaskResult task{.task = "mmmu_val",
                  .version = "0.0",
                  .fingerprint = "ab",
                  .alias = "mmmu_val",
                  .n = 3,
                  .n_original = 900,
                  .n_effective = 4};
  task.metrics = {
      {.name = "mmmu_acc", .value = 0.5, .stderr_value = 0.01, .stderr_source = "bootstrap"},
      {.name = "broken", .missing = "not finite"}};
  return EvaluationResult{.id = "9",
                          .weights_sha256 = "ab",
                          .tasks = {task},
                          .seconds = 1.5,
                          .draft_tokens = 9,
                          .draft_tokens_taken = 7};
}

Interim some_interim() {
  InterimScore score{.task = "mmmu_val", .fingerprint = "ab", .n = 30, .documents = 300};
  score.metrics = some_result().tasks.front().metrics;
  score.notes = "{}";
  return {.id = "9", .weights_sha256 = "ab", .fraction = 0.1, .tasks = {score}, .seconds = 2};
}

}  // namespace

TEST_CASE("every message comes back from its line as it was") {
  const Message message = GENERATE(
      Message(Hello{.version = "1", .device = "cpu"}),
      Message(Load{.id = "1", .dir = "/c", .weights = "ema"}),
      Message(Load{.id = "1", .dir = "/c", .weights = "ema", .settings = some_settings()}),
      Message(Prefetch{.dir = "/c", .weights = "ema", .dtype = "float32", .base_model = "/b"}),
      Message(Loaded{.id = "1", .weights_sha256 = "ff", .tensors = 3, .bytes = 1ULL << 40U}),
      Message(Loaded{.id = "1", .weights_sha256 = "ff", .prefetched = true}),
      Message(Answered{.id = "1",
                       .task = "t",
                       .doc_id = 5,
                       .text = "a\n\"b\" \xE2\x82\xAC",
                       .fingerprint = "ab"}),
      Message(Evaluate{.id = "1", .settings = some_settings(), .measured = {"mmmu_val"}}),
      Message(Cancel{.id = "1"}), Message(Bye{}),
      Message(
          Progress{.id = "1", .stage = "loading", .task = "", .done = 1, .total = 2, .tick = 3}),
      Message(Prepared{.id = "1", .tasks = {{"t", "ab"}, {"u", "cd"}}}),
      Message(Sample{.id = "1",
                     .task = "t",
                     .doc_id = 1,
                     .text = "x",
                     .output_tokens = 2,
                     .fingerprint = "ab"}),
      Message(Scored{.id = "1", .task = "t", .doc_id = 1, .line = "{}", .fingerprint = "ab"}),
      Message(Evaluate{.id = "1", .settings = some_settings(), .interim_at = {0.1, 0.3}}),
      Message(Evaluate{.id = "1", .settings = some_settings(), .series = "run-1 ema"}),
      Message(some_interim()), Message(some_result()),
      Message(JobError{
          .id = "1", .kind = "corruption", .message = "m", .retryable = true, .fatal = true}));

  const std::string line = encode(message);
  const auto decoded = decode(line);

  CHECK(line.find('\n') == std::string::npos);
  REQUIRE(decoded.has_value());
  CHECK(*decoded == message);
}

TEST_CASE("what an older program does not say is absent") {
  const auto load = decode(
      R"({"type":"load","id":"1","dir":"/c","weights":"ema","dtype":"auto","base_model":""})");
  const auto evaluate =
      decode(R"({"type":"evaluate","id":"1","settings":)" + encode_settings(some_settings()) + "}");
  const auto loaded = decode(
      R"({"type":"loaded","id":"1","weights_sha256":"","architecture":"","dtype":"","tensors":1,)"
      R"("bytes":0,"seconds":0})");

  REQUIRE(load.has_value());
  CHECK_FALSE(std::get<Load>(*load).settings.has_value());
  REQUIRE(evaluate.has_value());
  CHECK(std::get<Evaluate>(*evaluate).measured.empty());
  CHECK(std::get<Evaluate>(*evaluate).series.empty());
  REQUIRE(loaded.has_value());
  CHECK_FALSE(std::get<Loaded>(*loaded).prefetched);
}

TEST_CASE("a number that is not finite is never sent") {
  EvaluationResult result = some_result();
  result.tasks[0].metrics[0].value = std::numeric_limits<double>::quiet_NaN();

  const auto decoded = decode(encode(result));

  REQUIRE(decoded.has_value());
  CHECK_FALSE(std::get<EvaluationResult>(*decoded).tasks[0].metrics[0].value.has_value());
}

TEST_CASE("text that is not UTF-8 is made so instead of breaking the line") {
  const auto decoded = decode(encode(Sample{.id = "1", .task = "t", .text = "a\xFFz"}));

  REQUIRE(decoded.has_value());
  CHECK(std::get<Sample>(*decoded).text == "a\xEF\xBF\xBDz");
}

TEST_CASE("every truncation of a line is refused") {
  const std::string line = encode(Evaluate{.id = "1", .settings = some_settings()});
  for (std::size_t n = 0; n < line.size(); ++n) {
    CHECK_FALSE(decode(line.substr(0, n)).has_value());
  }
}

TEST_CASE("lines that are not messages are refused with the reason") {
  const std::string deep = R"({"type":"bye","x":)" + std::string(100000, '[');
  const auto [line, reason] = GENERATE_COPY(table<std::string, std::string>({
      {"[]", "not a JSON object"},
      {"{}", "\"type\" is missing"},
      {R"({"type":"exec"})", "unknown message type"},
      {R"({"type":"cancel"})", "\"id\" is missing"},
      {R"({"type":"cancel","id":5})", "expected a string"},
      {R"({"type":"prefetch","dir":"/c","weights":"ema","dtype":"auto"})",
       "\"base_model\" is missing"},
      {R"({"type":"progress","id":"1","stage":"","task":"","done":1.5,"total":2})", "whole number"},
      {R"({"type":"loaded","id":"1","weights_sha256":"","architecture":"","dtype":"","tensors":-1,"bytes":0,"seconds":0})",
       "expected a whole number >= 0"},
      {deep, "nested deeper"},
  }));

  const auto decoded = decode(line);

  REQUIRE_FALSE(decoded.has_value());
  CHECK(decoded.error().code == ErrorCode::kCorruption);
  CHECK(decoded.error().message.find(reason) != std::string::npos);
}

TEST_CASE("settings have one spelling, so that equal settings have equal text") {
  const auto decoded = decode_settings(encode_settings(some_settings()));

  REQUIRE(decoded.has_value());
  CHECK(*decoded == some_settings());
  CHECK(encode_settings(*decoded) == encode_settings(some_settings()));
}

TEST_CASE("a result of an evaluator that does not know the kinds of task errors is read") {
  EvaluationResult result{.id = "1"};
  result.tasks.resize(1);
  result.tasks[0].error = "no data";
  result.tasks[0].error_kind = kData;
  std::string line = encode(result);
  CHECK(std::get<EvaluationResult>(*decode(line)).tasks[0].error_kind == kData);

  const std::string field = R"("error_kind":"data",)";
  const std::size_t at = line.find(field);
  REQUIRE(at != std::string::npos);
  const auto old = decode(line.erase(at, field.size()));

  REQUIRE(old.has_value());
  CHECK(std::get<EvaluationResult>(*old).tasks[0].error_kind.empty());
}
