// What is said of examples that cannot be had.
#include "evaluator/tasks/few_shot.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "evaluator/tasks/task.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::tasks;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

constexpr std::string_view kTask = R"(task = "own"
[data]
files = "val.jsonl"
[columns]
target = "a"
[prompt]
text = "{q}"
[fewshot]
num = 1
files = "train.jsonl"
[scorer]
name = "exact_match"
)";

struct Disk {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  Disk(const std::string& documents, const std::string& examples) {
    files.put_file("/t/own.toml", kTask);
    if (!documents.empty()) files.put_file("/t/val.jsonl", documents);
    if (!examples.empty()) files.put_file("/t/train.jsonl", examples);
  }
  Result<std::unique_ptr<Task>> open() {
    return Task::open(files, find_task(files, "/t", "own").value(), "", /*shots=*/1);
  }
  std::string refusal() {
    const auto opened = open();
    REQUIRE(opened.has_value());
    const std::int64_t ids[] = {0};
    const auto texts = (*opened)->few_shot(ids, "", {.shots = 1});
    REQUIRE_FALSE(texts.has_value());
    CHECK(texts.error().code == ErrorCode::kCorruption);
    return texts.error().message;
  }
};

constexpr const char* kGood = "{\"q\": \"1\", \"a\": \"x\"}\n";

}  // namespace

TEST_CASE("a data file that is missing is named with the table that names it") {
  Disk no_examples(kGood, "");
  Disk no_documents("", kGood);

  CHECK(no_examples.open().error().message ==
        "own: /t/train.jsonl: named by [fewshot] files of /t/own.toml, is not there");
  CHECK(no_documents.open().error().message ==
        "own: /t/val.jsonl: named by [data] files of /t/own.toml, is not there");
}

TEST_CASE("a column that the examples lack is named once, with their file") {
  Disk disk(kGood, "{\"q\": \"1\"}\n");

  CHECK_THAT(disk.open().error().message,
             StartsWith("own: /t/train.jsonl has no column \"a\", which [columns] target needs"));
}

TEST_CASE("an example or a question without words is named by file and row") {
  Disk no_answer(kGood, "{\"q\": \"1\", \"a\": []}\n");
  Disk no_question("\n{\"q\": null, \"a\": \"x\"}\n", kGood);

  CHECK(no_answer.refusal() ==
        "own: the example that is document 0 of [fewshot]: /t/train.jsonl:1: column \"a\" holds no "
        "answer");
  CHECK(no_question.refusal() == "own: document 0: /t/val.jsonl:2: column \"q\" is empty (null)");
}

TEST_CASE("an example of a multiple-choice task ends with its right choice, the first of several") {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  const std::string task =
      "task = \"own\"\n[data]\nfiles = \"val.jsonl\"\n[columns]\ntarget = \"a\"\n[request]\n"
      "kind = \"multiple_choice\"\nchoices = \"c\"\n[prompt]\ntext = \"{q}\"\n[fewshot]\n"
      "files = \"train.jsonl\"\nsampler = \"first_n\"\n";
  const std::string question = R"({"q": "1", "c": ["x", "y"], "a": 0})";
  const auto texts_with = [&](const std::string& example) {
    files.put_file("/t/own.toml", task);
    files.put_file("/t/val.jsonl", question);
    files.put_file("/t/train.jsonl", example);
    const auto opened = Task::open(files, find_task(files, "/t", "own").value(), "", /*shots=*/1);
    REQUIRE(opened.has_value());
    const std::int64_t ids[] = {0};
    return (*opened)->few_shot(ids, "", {.shots = 1, .turn = FewShotTurn::kLogged});
  };

  CHECK(texts_with(R"({"q": "2", "c": ["x", "y"], "a": 1})")->prompts.front() == "2 y\n\n1");
  CHECK(texts_with(R"({"q": "2", "c": ["x", "y"], "a": [1, 0]})")->prompts.front() == "2 y\n\n1");
  CHECK(texts_with(R"({"q": "2", "c": ["x", "y"], "a": "x"})")->prompts.front() == "2 x\n\n1");
  const auto refused = texts_with(R"({"q": "2", "c": ["x", "y"], "a": 2})");
  REQUIRE_FALSE(refused.has_value());
  CHECK_THAT(
      refused.error().message,
      StartsWith("own: the example that is document 0 of [fewshot]: /t/train.jsonl:1: column "
                 "\"a\": the target 2 names none of the 2 choices"));
}
