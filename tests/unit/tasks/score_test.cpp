#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <sstream>

#include "evaluator/metrics/python_random.h"
#include "evaluator/tasks/python_json.h"
#include "evaluator/tasks/score_command.h"
#include "evaluator/tasks/task.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::tasks;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::string_view kTask = R"(task = "own"
[data]
files = "val.jsonl"
[columns]
target = "a"
[prompt]
text = "{q}"
[scorer]
name = "contains"
ignore_case = true
)";

struct Disk {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  Disk() {
    files.put_file("/t/own.toml", kTask);
    files.put_file("/t/val.jsonl",
                   "{\"q\": \"1\", \"a\": \"x\"}\n{\"q\": \"2\", \"a\": [\"y\", \"z\"]}\n{\"q\": "
                   "\"3\", \"a\": \"w\"}\n");
  }
  std::unique_ptr<Task> open() {
    return Task::open(files, find_task(files, "/t", "own").value(), "").value();
  }
};

}  // namespace

TEST_CASE("limit and offset choose a run of documents and refuse an empty one") {
  Disk disk;
  const auto task = disk.open();
  using Ids = std::vector<std::int64_t>;

  CHECK(task->select(std::nullopt, 0).value() == Ids{0, 1, 2});
  CHECK(task->select(-1, 1).value() == Ids{1, 2});
  CHECK(task->select(0.5, 0).value() == Ids{0, 1});
  CHECK(task->select(1, 2).value() == Ids{2});
  CHECK(task->select(1e300, 1).value() == Ids{1, 2});
  CHECK_FALSE(task->select(std::nullopt, 3).has_value());
  CHECK_FALSE(task->select(0, 0).has_value());
  CHECK_FALSE(task->select(-2, 0).has_value());
  CHECK_FALSE(task->select(std::nullopt, -1).has_value());
}

TEST_CASE("a result notes that memory narrowed its packs, and only then") {
  Disk disk;
  const auto task = disk.open();
  const std::vector<Response> responses = {{0, "x", 1}};
  const std::vector<std::string> inputs = {"1"};
  const auto notes_with = [&](bool narrowed) {
    PythonRandom random(0);
    return score(*task, responses, inputs, {.narrowed = narrowed}, random)->result.notes;
  };

  CHECK_THAT(notes_with(true), ContainsSubstring("\"narrowed\": true"));
  CHECK_THAT(notes_with(false), !ContainsSubstring("narrowed"));
}

TEST_CASE("a result notes how many of its pictures are cut off, if any") {
  Disk disk;
  const auto task = disk.open();
  const std::vector<Response> responses = {{0, "x", 1}};
  const std::vector<std::string> inputs = {"1"};
  const auto notes_with = [&](std::int64_t count) {
    PythonRandom random(0);
    return score(*task, responses, inputs, {.truncated_pictures = count}, random)->result.notes;
  };

  CHECK_THAT(notes_with(2), ContainsSubstring("\"truncated_pictures\": 2"));
  CHECK_THAT(notes_with(0), !ContainsSubstring("truncated_pictures"));
}

TEST_CASE("a result notes how the model was asked, where one was") {
  Disk disk;
  const auto task = disk.open();
  const std::vector<Response> responses = {{0, "x", 1}};
  const std::vector<std::string> inputs = {"1"};
  const auto notes_of = [&](const std::string& wrapper) {
    PythonRandom random(0);
    return score(*task, responses, inputs, {.asked_as = wrapper}, random)->result.notes;
  };

  CHECK_THAT(notes_of("huggingface"), ContainsSubstring("\"asked_as\": \"huggingface\""));
  CHECK_THAT(notes_of(""), !ContainsSubstring("asked_as"));
}

TEST_CASE("answers become values, an entry of results and sample lines") {
  Disk disk;
  const auto task = disk.open();
  const std::vector<Response> responses = {
      {0, "an X.", 3}, {1, " Z", 1}, {2, "<think>w</think> no", 9}};
  const std::vector<std::string> inputs = {"1", "2", "3"};
  PythonRandom random(0);

  const auto scores = score(*task, responses, inputs, {}, random);

  REQUIRE(scores.has_value());
  CHECK(scores->values == std::vector<double>{1, 1, 0});
  CHECK_THAT(scores->result.lmms_results,
             ContainsSubstring("\"contains,none\": 0.6666666666666666"));
  CHECK_THAT(scores->lines[1],
             ContainsSubstring(
                 "\"target\": \"['y', 'z']\", \"resps\": \" Z\", \"filtered_resps\": \"Z\""));
  CHECK_THAT(scores->lines[2], ContainsSubstring("\"filtered_resps\": \"no\""));
  CHECK(scores->result.n == 3);
  CHECK(scores->result.metrics.front().stderr_value.has_value());
}

TEST_CASE("where a task file says which rows belong together, the error is theirs") {
  Disk disk;
  std::string file(kTask);
  file.insert(file.find("[prompt]"), "cluster = \"g\"\n");
  disk.files.put_file("/t/own.toml", file);
  std::string lines;
  std::vector<Response> responses;
  std::vector<std::string> inputs;
  for (std::int64_t d = 0; d < 80; ++d) {  // eight groups of ten that are right or wrong together
    lines += R"({"q": "1", "a": "x", "g": )" + std::to_string(d / 10) + "}\n";
    responses.push_back({d, d / 10 % 2 == 0 ? "x" : "y", 1});
    inputs.emplace_back("1");
  }
  disk.files.put_file("/t/val.jsonl", lines);
  PythonRandom random(0);

  const auto scores = score(*disk.open(), responses, inputs, {}, random);

  REQUIRE(scores.has_value());
  const protocol::Metric& metric = scores->result.metrics.front();
  CHECK(metric.value == 0.5);
  // Of 80 differences of 1/2, and the products of two of a group: 8 · (5² - 10/4).
  const double expected = std::sqrt(20.0 / 79 / 80 + 180.0 / 80 / 80);
  CHECK(std::abs(metric.stderr_value.value_or(0) - expected) < 1e-12);
  CHECK(metric.stderr_source == "clustered");
}

TEST_CASE("an answer that makes every text right is an error of the data") {
  const auto error_of = [](const std::string& scorer, const std::string& answer) {
    Disk disk;
    std::string file(kTask);
    file.replace(file.find("contains"), 8, scorer);
    disk.files.put_file("/t/own.toml", file);
    disk.files.put_file("/t/val.jsonl", "{\"q\": \"1\", \"a\": " + answer + "}\n");
    const std::vector<Response> responses = {{0, "None", 1}};
    const std::vector<std::string> inputs = {"1"};
    PythonRandom random(0);
    const auto scores = score(*disk.open(), responses, inputs, {}, random);
    return scores.has_value() ? "" : scores.error().message;
  };

  CHECK_THAT(error_of("contains", R"("")"), ContainsSubstring("holds an empty text"));
  CHECK_THAT(error_of("contains", R"(["y", ""])"), ContainsSubstring("holds an empty text"));
  CHECK_THAT(error_of("contains", R"(["y", null])"), ContainsSubstring("holds no answer"));
  CHECK_THAT(error_of("exact_match", R"(["y", null])"), ContainsSubstring("holds no answer"));
  CHECK_THAT(error_of("exact_match", "null"), ContainsSubstring("holds no answer"));
  CHECK(error_of("exact_match", R"("")").empty());
}

TEST_CASE("nothing to score and an unknown compat are errors") {
  Disk disk;
  const auto task = disk.open();
  PythonRandom random(0);
  CHECK_FALSE(score(*task, {}, {}, {}, random).has_value());
  const std::vector<Response> one = {{0, "x", 1}};
  const std::vector<std::string> input = {"1"};
  ScoreOptions options;
  options.compat = "loose";
  CHECK_FALSE(score(*task, one, input, options, random).has_value());
}

TEST_CASE("the score command refuses lines without answers by code two") {
  Disk disk;
  disk.files.put_file("/s.jsonl",
                      "{\"doc_id\": 0, \"target\": \"answer\", \"filtered_resps\": \"x\"}\n");
  std::ostringstream out;
  std::ostringstream err;

  CHECK(run_score({.task = "textvqa_val", .samples = "/s.jsonl", .data_dir = "", .tasks_dir = ""},
                  disk.files, out, err) == 2);
  CHECK_THAT(err.str(), ContainsSubstring("--data DIR"));
  CHECK(run_score({.task = "none", .samples = "/s.jsonl", .data_dir = "", .tasks_dir = ""},
                  disk.files, out, err) == 2);
  CHECK(out.str().empty());
}

TEST_CASE("the score command answers docvqa from the lines alone") {
  Disk disk;
  disk.files.put_file("/s.jsonl",
                      "{\"doc_id\": 1, \"target\": \"['red']\", \"filtered_resps\": \"red\"}\n"
                      "{\"doc_id\": 0, \"target\": \"['a', \\\"it's\\\"]\", \"resps\": \" its\", "
                      "\"filtered_resps\": \"its\"}\n");
  std::ostringstream out;
  std::ostringstream err;

  REQUIRE(run_score({.task = "docvqa_val", .samples = "/s.jsonl", .json = true}, disk.files, out,
                    err) == 0);

  const auto report = parse_json(out.str());
  REQUIRE(report.has_value());
  CHECK((*report)["metrics"]["anls"] == 0.875);
  CHECK((*report)["per_sample"] ==
        Value::array({{{"doc_id", 0}, {"anls", 0.75}}, {{"doc_id", 1}, {"anls", 1.0}}}));
}

TEST_CASE("a torn or doubled samples file is refused with its line") {
  Disk disk;
  std::ostringstream out;
  std::ostringstream err;
  for (const char* content :
       {"{\"doc_id\": 0, \"tar",
        "{\"doc_id\": 0, \"target\": \"[]\", \"filtered_resps\": \"x\"}\n{\"doc_id\": 0}\n", "",
        "7\n"}) {
    disk.files.put_file("/s.jsonl", content);
    CHECK(run_score({.task = "docvqa_val", .samples = "/s.jsonl"}, disk.files, out, err) == 1);
  }
  CHECK_THAT(err.str(), ContainsSubstring("/s.jsonl:1") && ContainsSubstring("/s.jsonl:2"));
}
