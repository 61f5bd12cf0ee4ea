#include "evaluator/tasks/task_file.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "evaluator/tasks/definition.h"
#include "evaluator/tasks/shots.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::tasks;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::string_view kGood = R"(task = "own"
[data]
set = "me/own"
split = "test"
[columns]
target = "answer"
[prompt]
text = "{question}"
[scorer]
name = "exact_match"
)";

std::string all_of(const Problems& problems) {
  std::string text;
  for (const std::string& problem : problems) text += problem + "\n";
  return text;
}

std::string problems_after(const std::string& from, const std::string& to) {
  std::string content(kGood);
  content.replace(content.find(from), from.size(), to);
  Problems problems;
  (void)parse_definition(content, "own.toml", problems);
  return all_of(problems);
}

}  // namespace

TEST_CASE("the built-in tasks carry lmms-eval's names, data sets and limits") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);

  const auto tasks = list_tasks(files, "");

  REQUIRE(tasks.has_value());
  REQUIRE(tasks->size() == 4);
  CHECK((*tasks)[0].name == "docvqa_val");
  CHECK((*tasks)[0].data_set == "lmms-lab/DocVQA");
  CHECK((*tasks)[0].config == "DocVQA");
  CHECK((*tasks)[0].generation.max_new_tokens == 32);
  CHECK((*tasks)[1].name == "mme");
  CHECK((*tasks)[1].data_set == "lmms-lab/MME");
  CHECK((*tasks)[1].generation.max_new_tokens == 16);
  CHECK((*tasks)[2].version == "0.0");
  CHECK_FALSE((*tasks)[3].generation.max_new_tokens.has_value());
  CHECK((*tasks)[3].generation.until == std::vector<std::string>{"ASSISTANT:"});
  CHECK((*tasks)[3].aliases.at("accuracy") == "exact_match");
}

TEST_CASE("examples need a place of their own and go with tasks without pictures") {
  const auto problems_of = [](const std::string& data, const std::string& fewshot,
                              const std::string& images) {
    Problems problems;
    const Definition definition =
        parse_definition("task = \"own\"\n[data]\n" + data + "\n[columns]\ntarget = \"a\"\n" +
                             images + "[prompt]\ntext = \"{q}\"\n[fewshot]\n" + fewshot +
                             "\n[scorer]\nname = \"exact_match\"\n",
                         "own.toml", problems);
    std::string all;
    for (const std::string& problem : problems) all += problem + "\n";
    return all;
  };
  const std::string set = "set = \"me/own\"\nsplit = \"test\"";
  const std::string images = "images = \"i\"\n";

  CHECK(problems_of(set, "split = \"train\"\nnum = 3", "").empty());
  CHECK(problems_of(set, "files = \"train.jsonl\"", "").empty());
  CHECK(problems_of(set, "num = 0", images).empty());
  CHECK_THAT(problems_of(set, "split = \"train\"", images), ContainsSubstring("without pictures"));
  CHECK_THAT(problems_of(set, "num = 3", ""), ContainsSubstring("needs one of \"split\""));
  CHECK_THAT(problems_of(set, "split = \"a\"\nfiles = \"b.jsonl\"", ""),
             ContainsSubstring("needs one of \"split\""));
  CHECK_THAT(problems_of("files = \"v.jsonl\"", "split = \"train\"", ""),
             ContainsSubstring("needs \"files\""));
  CHECK_THAT(problems_of(set, "split = \"../x\"", ""), ContainsSubstring("plain name"));
  CHECK_THAT(problems_of(set, "split = \"train\"\nsampler = \"balanced\"", ""),
             ContainsSubstring("known are default, first_n"));
  CHECK_THAT(problems_of(set, "split = \"train\"\nnum = -1", ""), ContainsSubstring("0 to 1000"));
}

TEST_CASE("examples go before a question alone, and there with the question's own delimiter") {
  const auto definition_of_kind = [](const std::string& request, const std::string& fewshot,
                                     Problems& problems) {
    return parse_definition(
        "task = \"own\"\n[data]\nset = \"me/own\"\nsplit = \"test\"\n[prompt]\ntext = \"{q}\"\n" +
            request + "\n[fewshot]\nsplit = \"train\"\nnum = 2\n" + fewshot,
        "own.toml", problems);
  };
  const std::string target = "[columns]\ntarget = \"a\"\n";
  const std::string choice = target + "[request]\nkind = \"multiple_choice\"\nchoices = \"c\"\n";
  const std::string continued = target + "[request]\nkind = \"loglikelihood\"\n";

  Problems none;
  CHECK(definition_of_kind(choice, "", none).fewshot->target_delimiter == " ");
  CHECK(definition_of_kind(continued, "", none).fewshot->target_delimiter == " ");
  CHECK(definition_of_kind(continued + "format = \"plain\"\ndelimiter = \": \"", "", none)
            .fewshot->target_delimiter == ": ");
  CHECK(definition_of_kind(choice + "format = \"plain\"\ndelimiter = \": \"",
                           "target_delimiter = \" = \"", none)
            .fewshot->target_delimiter == " = ");
  CHECK(all_of(none).empty());
  Problems of_rolling;
  (void)definition_of_kind("[request]\nkind = \"rolling\"", "", of_rolling);
  CHECK_THAT(all_of(of_rolling),
             ContainsSubstring("own.toml:9: [fewshot] goes with questions, and a request of kind "
                               "\"rolling\" has none"));
}

TEST_CASE("the number of examples is the one asked for, the task's own, or none") {
  Definition definition;
  definition.file.name = "own";
  CHECK(shots_of(definition, std::nullopt).value() == 0);
  CHECK(shots_of(definition, 0).value() == 0);
  CHECK_THAT(shots_of(definition, 2).error().message, ContainsSubstring("own has no examples"));
  definition.fewshot = FewShotDefinition{.split = "train"};
  CHECK(shots_of(definition, std::nullopt).value() == 0);
  CHECK(shots_of(definition, 2).value() == 2);
  definition.fewshot->num = 5;
  CHECK(shots_of(definition, std::nullopt).value() == 5);
  CHECK(shots_of(definition, 0).value() == 0);
  definition.fewshot->num = 0;
  CHECK(shots_of(definition, 2).value() == 0);
}

TEST_CASE("an unknown task names the nearest known one") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);

  const auto task = find_task(files, "", "docvqa_vla");

  REQUIRE_FALSE(task.has_value());
  CHECK(task.error().code == ErrorCode::kNotFound);
  CHECK_THAT(task.error().message, ContainsSubstring("did you mean \"docvqa_val\"? Known are "));
  CHECK_THAT(find_task(files, "", "nothing like it").error().message,
             ContainsSubstring("called \"nothing like it\". Known are "));
}

TEST_CASE("a user's file is a task like the others") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_file("/tasks/own.toml", kGood);
  files.put_file("/tasks/notes.txt", "not a task");

  const auto task = find_task(files, "/tasks", "own");

  REQUIRE(task.has_value());
  CHECK(task->source == "/tasks/own.toml");
  CHECK(task->scorer == "exact_match");
  CHECK(check_task_file(files, "/tasks/own.toml").value().empty());
}

TEST_CASE("every broken file of the folder is listed at once") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_file("/tasks/a.toml", "task = 1");
  files.put_file("/tasks/b.toml", "task = ");

  const auto tasks = list_tasks(files, "/tasks");

  REQUIRE_FALSE(tasks.has_value());
  CHECK_THAT(tasks.error().message,
             ContainsSubstring("/tasks/a.toml:1") && ContainsSubstring("/tasks/b.toml:1"));
}

TEST_CASE("mistakes in a task file are explained with line, seen and expected") {
  CHECK(problems_after("{question}", "{question}").empty());
  CHECK_THAT(problems_after("split = \"test\"", "splitt = \"test\""),
             ContainsSubstring("own.toml:4: unknown key \"splitt\"") &&
                 ContainsSubstring("did you mean \"split\"?"));
  CHECK_THAT(problems_after("\"exact_match\"", "\"exactmatch\""),
             ContainsSubstring("did you mean \"exact_match\"?"));
  CHECK_THAT(problems_after("[scorer]\nname = \"exact_match\"", ""),
             ContainsSubstring("lacks the table [scorer]"));
  CHECK_THAT(problems_after("{question}", "{question"),
             ContainsSubstring("{ without a column name and a }"));
  CHECK_THAT(problems_after("{question}", "{q|upercase}"), ContainsSubstring("unknown filter"));
  CHECK_THAT(problems_after("me/own", "../../etc"),
             ContainsSubstring("plain name inside the data folder"));
  CHECK_THAT(problems_after("task = \"own\"", "task = \"../own\""),
             ContainsSubstring("becomes part of file names"));
  CHECK_THAT(problems_after("target = \"answer\"", "targets = [\"answer\"]"),
             ContainsSubstring("did you mean \"target\"?"));
  CHECK_THAT(problems_after("\"exact_match\"", "\"vqa\""),
             ContainsSubstring("lacks the key \"answers\""));
  CHECK_THAT(problems_after("\"exact_match\"", "\"mmmu\""), ContainsSubstring("go together"));
  CHECK_THAT(problems_after("\"exact_match\"",
                            "\"exact_match\"\n[[metrics]]\nname = \"exact_match\"\n"
                            "higher_is_better = false"),
             ContainsSubstring("own.toml:13: \"higher_is_better\" in [[metrics]] is false"));
  CHECK_THAT(problems_after("text = \"{question}\"\n[scorer]\nname = \"exact_match\"",
                            "builder = \"mmmu\"\n[scorer]\nname = \"mmmu\"\n[fewshot]\n"
                            "split = \"train\""),
             ContainsSubstring("own.toml:11: [fewshot] goes with a task without pictures") &&
                 ContainsSubstring("builder \"mmmu\" shows them"));
}

TEST_CASE("what a metric says of its comparison is the scorer's, as in lmms-eval's files") {
  const auto problems_of = [](const std::string& scorer, const std::string& metric,
                              ScorerDefinition* read = nullptr) {
    Problems problems;
    const Definition definition = parse_definition(
        "task = \"own\"\n[data]\nset = \"me/own\"\nsplit = \"test\"\n[columns]\ntarget = \"a\"\n"
        "[prompt]\ntext = \"{q}\"\n[scorer]\nname = " +
            scorer + "\n[[metrics]]\nname = " + metric + "\n",
        "own.toml", problems);
    if (read != nullptr) *read = definition.scorer;
    return all_of(problems);
  };
  const std::string exact = "\"exact_match\"";

  ScorerDefinition of_metric;
  CHECK(problems_of(exact, exact + "\nignore_case = true\nignore_punctuation = true", &of_metric)
            .empty());
  CHECK(of_metric.ignore_case);
  CHECK(of_metric.ignore_punctuation);
  CHECK_FALSE(of_metric.ignore_numbers);
  ScorerDefinition contains;
  CHECK(problems_of("\"contains\"", "\"contains\"\nignore_case = true", &contains).empty());
  CHECK(contains.ignore_case);
  CHECK(problems_of(exact + "\nignore_case = true", exact + "\nignore_case = true").empty());

  CHECK_THAT(problems_of(exact + "\nignore_case = false", exact + "\nignore_case = true"),
             ContainsSubstring("own.toml:14: \"ignore_case\" is true in [[metrics]] and false in "
                               "[scorer]: keep one"));
  CHECK_THAT(problems_of(exact, exact + "\nignore_case = 1"),
             ContainsSubstring("\"ignore_case\" in [[metrics]] is an integer"));
  CHECK_THAT(problems_of("\"anls\"", "\"anls\"\nignore_case = true"),
             ContainsSubstring("unknown key \"ignore_case\" in [[metrics]] of anls"));
  CHECK_THAT(problems_of("\"contains\"", "\"contains\"\nignore_numbers = true"),
             ContainsSubstring("unknown key \"ignore_numbers\" in [[metrics]] of contains"));
  // Only logged, as in lmms-eval, whose textvqa compares by a function of its own.
  ScorerDefinition vqa;
  CHECK(problems_of("\"vqa\"\nanswers = \"a\"", exact + "\nignore_case = true", &vqa).empty());
  CHECK_FALSE(vqa.ignore_case);
}

TEST_CASE("a setting that one prompt variant lacks is a mistake") {
  std::string content(kGood);
  content.replace(content.find("{question}"), 10, "{pre}{question}");
  content += "[prompt.variants.default]\npre = \"a\"\n[prompt.variants.other]\n";
  Problems problems;
  (void)parse_definition(content, "own.toml", problems);
  CHECK_THAT(all_of(problems), ContainsSubstring("[prompt.variants.other] lacks \"pre\""));
}

TEST_CASE("a setting of a prompt variant that nothing reads is a mistake") {
  const auto problems_of = [](const std::string& prompt, const std::string& scorer,
                              const std::string& variant) {
    Problems problems;
    (void)parse_definition(
        "task = \"own\"\n[data]\nset = \"me/own\"\nsplit = \"test\"\n[columns]\ntarget = \"a\"\n"
        "[scorer]\nname = \"" +
            scorer + "\"\n[prompt]\n" + prompt + "\n[prompt.variants.default]\n" + variant + "\n",
        "own.toml", problems);
    return all_of(problems);
  };
  const std::string text = "text = \"{pre}{question}\"";
  const std::string mme = "builder = \"mme\"";
  const std::string mmmu = "builder = \"mmmu\"";

  CHECK(problems_of(text, "exact_match", "pre = \"\"\nocr = false").empty());
  CHECK_THAT(problems_of(text, "exact_match", "pre = \"\"\npost = \"\""),
             ContainsSubstring("own.toml:13: \"post\" in [prompt.variants.default] is read by "
                               "nothing: the prompt's text has no {post}"));
  CHECK_THAT(problems_of(text, "exact_match", "pre = \"\"\nocr = true"),
             ContainsSubstring(R"("\nReference OCR token: {ocr_tokens|join}")"));
  CHECK(problems_of(mme, "mme", "pre_prompt = \"\"\npost_prompt = \"\"").empty());
  CHECK_THAT(problems_of(mme, "mme", "postprompt = \"\""),
             ContainsSubstring("unknown key \"postprompt\" in [prompt.variants.default] of builder "
                               "mme; did you mean \"post_prompt\"?"));
  CHECK(problems_of(mmmu, "mmmu",
                    "prompt_type = \"format\"\nmultiple_choice_prompt = \"\"\n"
                    "open_ended_prompt = \"\"")
            .empty());
  CHECK(problems_of(mmmu, "mmmu",
                    "format = \"qwen3_vl\"\npre_prompt = \"\"\npost_prompt = \"\"\n"
                    "open_ended_prompt = \"\"")
            .empty());
  // Only the form of qwen3_vl has it, in lmms-eval, too.
  CHECK_THAT(problems_of(mmmu, "mmmu", "pre_prompt = \"\""),
             ContainsSubstring("unknown key \"pre_prompt\""));
}

TEST_CASE("every cut of a task file is a problem or a task and never a crash") {
  for (std::size_t n = 0; n < kGood.size(); ++n) {
    Problems problems;
    (void)parse_definition(kGood.substr(0, n), "cut.toml", problems);
    if (n < kGood.size() - 16) CHECK_FALSE(problems.empty());
  }
}
