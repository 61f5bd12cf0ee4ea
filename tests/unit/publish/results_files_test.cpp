#include "agent/publish/results_files.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "agent/publish/table.h"
#include "agent/publish/utc.h"
#include "tests/unit/state/scenario.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::publish;
using test::must;
using Json = nlohmann::ordered_json;

namespace {

RunFacts facts_of(const std::string& checkpoint = "/out/run/checkpoint-500") {
  RunFacts facts;
  facts.checkpoint = checkpoint;
  facts.version = "0.1.0";
  facts.device = "cpu";
  facts.started = WallTime{std::chrono::seconds{1795251600}};
  facts.finished = facts.started + std::chrono::seconds{90};
  return facts;
}

SampleSource lines_of(std::vector<std::string> lines) {
  return [lines = std::move(lines)](const std::string&, const auto& line) -> Status {
    for (const std::string& text : lines) EVALCAR_RETURN_IF_ERROR(line(text));
    return {};
  };
}

protocol::EvaluationResult two_tasks() {
  protocol::EvaluationResult result;
  result.weights_sha256 = "abc";
  result.seconds = 2;
  result.tasks = {test::anls_result("zeta", 0.5), test::anls_result("alpha", 0.25)};
  return result;
}

}  // namespace

TEST_CASE("a time is read back as it was written, and nothing near to one is taken for it") {
  const WallTime time{std::chrono::microseconds{1'795'000'000'123'456}};
  REQUIRE(format_utc(time) == "2026-11-18T11:06:40.123456Z");
  CHECK(read_utc(format_utc(time)) == time);
  CHECK(read_utc("2024-02-29T23:59:59.000000Z").has_value());
  for (const char* const other :
       {"", "2026-11-18T11:06:40.123456", "2026-11-18T11:06:40.123456Z ",
        "2026-11-18 11:06:40.123456Z", "2026-11-18T11:06:40.12345Z", "2026-1-18T11:06:40.1234567Z",
        "2026-13-18T11:06:40.123456Z", "2025-02-29T11:06:40.123456Z", "2026-11-18T24:00:00.000000Z",
        "+026-11-18T11:06:40.123456Z", "2026-11-18T11:60:40.123456Z"}) {
    INFO(other);
    CHECK_FALSE(read_utc(other).has_value());
    CHECK(parse_utc(other) == WallTime{});
  }
}

TEST_CASE("the model's folder is named as lmms-eval names it") {
  // What lmms_eval.utils.sanitize_model_name gives for these.
  CHECK(sanitized_model_name("/out/run/checkpoint-500") == "run__checkpoint-500");
  CHECK(sanitized_model_name("/out/run/checkpoint-500/") == "run__checkpoint-500");
  CHECK(sanitized_model_name("checkpoint-500") == "checkpoint-500");
  CHECK(sanitized_model_name("Qwen/Qwen2.5-VL") == "Qwen__Qwen2.5-VL");
  CHECK(sanitized_model_name("/a/b:*c/d") == "b__c__d");
}

TEST_CASE("keys come in lmms-eval's order, tasks by name, our own facts last") {
  const Json root = Json::parse(
      must(results_json(facts_of(), two_tasks(), lines_of({R"({"doc_id":0,"doc_hash":"x"})"}))));

  std::vector<std::string> keys;
  for (const auto& [key, value] : root.items()) keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"results",
                                         "group_subtasks",
                                         "configs",
                                         "versions",
                                         "n-shot",
                                         "higher_is_better",
                                         "n-samples",
                                         "config",
                                         "git_hash",
                                         "git_branch",
                                         "lmms_eval_version",
                                         "date",
                                         "throughput",
                                         "usage",
                                         "efficiency",
                                         "task_hashes",
                                         "model_source",
                                         "model_name",
                                         "model_name_sanitized",
                                         "system_instruction",
                                         "system_instruction_sha",
                                         "fewshot_as_multiturn",
                                         "chat_template",
                                         "chat_template_sha",
                                         "start_time",
                                         "end_time",
                                         "total_evaluation_time_seconds",
                                         "evalcar"});
  CHECK(root["results"].begin().key() == "alpha");
  CHECK(root["results"]["alpha"]["anls,none"] == 0.25);
  CHECK(root["date"] == "20261121_090130");
  CHECK(root["total_evaluation_time_seconds"] == "90.0");
  CHECK(root["evalcar"]["weights_sha256"] == "abc");
}

TEST_CASE("without samples the keys that come from samples are absent, as in lmms-eval") {
  const Json root = Json::parse(must(results_json(facts_of(), two_tasks(), nullptr)));
  CHECK_FALSE(root.contains("efficiency"));
  CHECK(root["task_hashes"].empty());
}

TEST_CASE("efficiency counts tokens and scores as lmms-eval does") {
  protocol::EvaluationResult result;
  result.tasks = {test::anls_result("t", 0.5)};
  const Json root = Json::parse(must(results_json(
      facts_of(), result,
      lines_of({R"({"token_counts":[{"output_tokens":3}],"exact_match":1.0,"doc_hash":"h"})",
                R"({"token_counts":[null],"my_score":true})",
                R"({"token_counts":[{"output_tokens":5}],"score":{"score":0.5}})",
                R"({"acc":-1})"}))));
  const Json& task = root["efficiency"]["by_task"]["t"];
  CHECK(task["docs"] == 4.0);
  CHECK(task["docs_with_token_counts"] == 2.0);
  CHECK(task["total_output_tokens"] == 8.0);
  CHECK(task["total_correct_score"] == 2.5);
  CHECK(task["avg_output_tokens_per_sample"] == 4.0);
  CHECK(task["tokens_per_correct_answer"] == 3.2);
  CHECK(root["efficiency"]["overall"] == task);
}

TEST_CASE(
    "where an earlier attempt gave answers, or none was given, no speed is made of its time") {
  const auto throughput = [](bool resumed, double seconds) {
    RunFacts facts = facts_of();
    facts.resumed = resumed;
    protocol::EvaluationResult result = two_tasks();
    result.seconds = seconds;
    const auto lines = lines_of({R"({"token_counts":[{"output_tokens":3}]})"});
    return Json::parse(must(results_json(facts, result, lines)))["throughput"];
  };

  CHECK(throughput(false, 2)["total_elapsed_time"] == 2.0);
  CHECK(throughput(false, 2)["avg_speed"] == 3.0);
  for (const Json& told : {throughput(true, 2), throughput(false, 0)}) {
    CHECK(told["total_gen_tokens"] == 6);
    CHECK_FALSE(told.contains("total_elapsed_time"));
    CHECK_FALSE(told.contains("avg_speed"));
  }
}

TEST_CASE("a number as version stays a number, and the counts are those of the evaluation") {
  protocol::EvaluationResult result = two_tasks();
  result.tasks[0].version = "0.0";
  RunFacts facts = facts_of();
  facts.settings.limit = 0.9;  // of another task: what it came to is in the result
  const Json root = Json::parse(must(results_json(facts, result, nullptr)));
  CHECK(root["versions"]["zeta"] == 0.0);
  CHECK(root["versions"]["alpha"] == "Yaml");
  CHECK(root["n-samples"]["zeta"] == Json({{"original", 10}, {"effective", 3}}));
}

TEST_CASE("a failed task is left out of the results and told among our own facts") {
  protocol::EvaluationResult result = two_tasks();
  result.tasks[1].error = "no data";
  const Json root = Json::parse(must(results_json(facts_of(), result, nullptr)));
  CHECK_FALSE(root["results"].contains("alpha"));
  CHECK(root["evalcar"]["failed_tasks"]["alpha"] == "no data");
}

TEST_CASE("broken JSON from the evaluator is an error that names the task") {
  protocol::EvaluationResult result = two_tasks();
  result.tasks[0].lmms_results = "{";
  CHECK(results_json(facts_of(), result, nullptr).error().code == ErrorCode::kCorruption);
  const auto bad_line = results_json(facts_of(), two_tasks(), lines_of({"nope"}));
  CHECK(bad_line.error().message.starts_with("alpha: sample 0"));
}

TEST_CASE("the files lie where lmms-eval's tools look, samples before the results file") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_directory("/o");
  const ResultsFiles written = must(write_results_files(
      files, "/o/d", facts_of(), two_tasks(), lines_of({R"({"doc_id":0})", R"({"doc_id":1})"})));
  CHECK(written.results == "/o/d/run__checkpoint-500/20261121_090130_results.json");
  CHECK(written.samples.size() == 2);
  CHECK(files.content("/o/d/run__checkpoint-500/20261121_090130_samples_alpha.jsonl") ==
        "{\"doc_id\":0}\n{\"doc_id\":1}\n");
  std::vector<std::string> renamed;
  for (const test::Call& call : files.calls()) {
    if (call.operation == "rename") renamed.push_back(call.path);
  }
  CHECK(renamed.back().find("_results.json") != std::string::npos);
}

TEST_CASE("the table has lmms-eval's columns, marks our standard errors and explains gaps") {
  protocol::EvaluationResult result = two_tasks();
  result.tasks[0].metrics[0].stderr_source = "bootstrap";
  result.tasks[1].metrics.push_back({"wer", "strict", std::nullopt, {}, "", "no judge", false});
  CHECK(results_table(result) ==
        "|Tasks|Version|Filter|n-shot|Metric|   |Value |   |Stderr |\n"
        "|-----|-------|------|-----:|------|---|-----:|---|------:|\n"
        "|alpha|Yaml   |none  |     0|anls  |↑  |0.2500|±  | 0.2500|\n"
        "|alpha|Yaml   |strict|     0|wer   |↓  |   N/A|±  |    N/A|\n"
        "|zeta |Yaml   |none  |     0|anls  |↑  |0.5000|±  |0.2500*|\n"
        "\n"
        "alpha/wer: no judge\n"
        "* standard error of evalcar's (bootstrap, or clustered by document); lmms-eval gives N/A "
        "here\n");
}
