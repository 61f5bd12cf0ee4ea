// Tasks that score given tokens: their files, what is asked, and what the likelihoods are worth.
#include "evaluator/tasks/likelihoods.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "evaluator/tasks/conversation.h"
#include "evaluator/tasks/definition.h"
#include "evaluator/tasks/task.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::tasks;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::string_view kChoice = R"(task = "own"
[data]
files = "val.jsonl"
[columns]
target = "a"
[request]
kind = "multiple_choice"
choices = "c"
[prompt]
text = "{q}"
)";

constexpr std::string_view kLoss = R"(task = "own"
[data]
files = "val.jsonl"
[request]
kind = "loss"
)";

std::string problems_of(const std::string& content) {
  Problems problems;
  (void)parse_definition(content, "own.toml", problems);
  std::string text;
  for (const std::string& problem : problems) text += problem + "\n";
  return text;
}

std::string changed(std::string_view file, const std::string& from, const std::string& to) {
  std::string content(file);
  content.replace(content.find(from), from.size(), to);
  return content;
}

struct Disk {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  Disk(const std::string& task, const std::string& lines) {
    files.put_file("/t/own.toml", task);
    files.put_file("/t/val.jsonl", lines);
  }
  std::unique_ptr<Task> open() {
    auto file = find_task(files, "/t", "own");
    INFO((file.has_value() ? "" : file.error().message));
    REQUIRE(file.has_value());
    return Task::open(files, *file, "").value();
  }
};

Result<Scores> scored(const Task& task, const std::vector<std::vector<Likelihood>>& found) {
  std::vector<Response> responses;
  std::vector<std::string> inputs;
  for (std::size_t i = 0; i < found.size(); ++i) {
    responses.push_back({.doc_id = static_cast<std::int64_t>(i),
                         .text = encode_likelihoods(found[i]),
                         .output_tokens = 1});
    inputs.push_back(task.prompt(static_cast<std::int64_t>(i), "").value().input);
  }
  const auto random = make_python_random(0);
  return score(task, responses, inputs, {}, *random);
}

const protocol::Metric& metric(const Scores& scores, const std::string& name) {
  for (const protocol::Metric& m : scores.result.metrics) {
    if (m.name == name) return m;
  }
  FAIL("no metric " << name);
  return scores.result.metrics.front();
}

}  // namespace

TEST_CASE("mistakes in a [request] are explained") {
  CHECK(problems_of(std::string(kChoice)).empty());
  CHECK(problems_of(std::string(kLoss)).empty());
  CHECK_THAT(problems_of(changed(kChoice, "multiple_choice", "multiple_choise")),
             ContainsSubstring("did you mean \"multiple_choice\""));
  CHECK_THAT(problems_of(changed(kChoice, "choices = \"c\"", "")),
             ContainsSubstring("lacks \"choices\""));
  CHECK_THAT(problems_of(changed(kChoice, "choices = \"c\"", "choices = [\"one\"]")),
             ContainsSubstring("at least two"));
  CHECK_THAT(problems_of(changed(kChoice, "choices = \"c\"", "choices = [\"{\", \"b\"]")),
             ContainsSubstring("own.toml:8: \"choices\" in [request], choice 0, has a { without a "
                               "column name"));
  CHECK_THAT(problems_of(changed(kChoice, "choices = \"c\"", "choices = [\"a\", \"{b|uper}\"]")),
             ContainsSubstring("own.toml:8: \"choices\" in [request], choice 1, has the unknown "
                               "filter \"uper\""));
  CHECK_THAT(problems_of(changed(kChoice, "[prompt]", "[scorer]\nname = \"anls\"\n[prompt]")),
             ContainsSubstring("is scored by its likelihoods"));
  CHECK_THAT(problems_of(std::string(kLoss) + "[prompt]\ntext = \"x\"\n"),
             ContainsSubstring("and no prompt"));
  CHECK_THAT(problems_of(std::string(kLoss) + "[columns]\ntarget = \"x\"\n"),
             ContainsSubstring("compares with none"));
  CHECK_THAT(problems_of(std::string(kLoss) + "choices = [\"a\", \"b\"]\n"),
             ContainsSubstring("choices"));
  CHECK_THAT(problems_of(std::string(kLoss) + "[[metrics]]\nname = \"acc\"\n"),
             ContainsSubstring("loss"));
  CHECK_THAT(problems_of(changed(kChoice, "choices = \"c\"", "choices = \"c\"\nmax_length = 5")),
             ContainsSubstring("max_length"));
}

TEST_CASE("what would do nothing, or turn a number round, beside a [request] is refused") {
  const auto with_metrics = [](std::string_view file, const std::string& metrics) {
    return problems_of(std::string(file) + metrics);
  };
  const std::string rolling =
      "task = \"own\"\n[data]\nfiles = \"v.jsonl\"\n[request]\nkind = \"rolling\"\n[prompt]\n"
      "text = \"{t}\"\n";
  for (const std::string& file : {std::string(kChoice), std::string(kLoss), rolling}) {
    CHECK(problems_of(file).empty());
    CHECK_THAT(
        problems_of(file + "[generation]\nmax_new_tokens = 5\n"),
        ContainsSubstring("[generation]: a request of kind") && ContainsSubstring("leave it out"));
  }
  CHECK(with_metrics(kLoss, "[[metrics]]\nname = \"loss\"\nhigher_is_better = false\n").empty());
  CHECK_THAT(
      with_metrics(kLoss, "[[metrics]]\nname = \"loss\"\nhigher_is_better = true\n"),
      ContainsSubstring("own.toml:8: \"higher_is_better\" in [[metrics]] is true for \"loss\", "
                        "expected false"));
  CHECK_THAT(with_metrics(kChoice, "[[metrics]]\nname = \"acc\"\nhigher_is_better = false\n"),
             ContainsSubstring("is false for \"acc\", expected true"));
  CHECK_THAT(with_metrics(kChoice, "[[metrics]]\nname = \"acc\"\n[[metrics]]\nname = \"acc\"\n"),
             ContainsSubstring("own.toml:14: \"name\" in [[metrics]] is \"acc\" a second time"));
}

TEST_CASE("a setting of the choices that one prompt variant lacks is a mistake") {
  const std::string file = changed(kChoice, "\"c\"", "[\"{yes}\", \"no\"]") +
                           "[prompt.variants.default]\nyes = \"ja\"\n[prompt.variants.other]\n";

  CHECK_THAT(problems_of(file), ContainsSubstring("[prompt.variants.other] lacks \"yes\", which "
                                                  "[request] choices uses"));
  CHECK(problems_of(file + "yes = \"oui\"\n").empty());
}

TEST_CASE("a text that is read as it stands has no pictures and no builder of questions") {
  const std::string plain =
      changed(kChoice, "choices = \"c\"", "choices = \"c\"\nformat = \"plain\"");
  const std::string rolling =
      "task = \"own\"\n[data]\nfiles = \"v.jsonl\"\n[request]\nkind = \"rolling\"\n[prompt]\n"
      "text = \"{q}\"\n";

  CHECK(problems_of(plain).empty());
  CHECK_THAT(
      problems_of(changed(plain, "target =", "images = \"i\"\ntarget =")),
      ContainsSubstring("own.toml:5: \"images\" in [columns] is \"i\", and [request] format = "
                        "\"plain\"") &&
          ContainsSubstring("format = \"chat\""));
  CHECK_THAT(problems_of(changed(plain, "text = \"{q}\"", "builder = \"mmmu\"")),
             ContainsSubstring("own.toml:11: \"builder\" in [prompt] is \"mmmu\""));
  CHECK(problems_of(changed(plain, "text = \"{q}\"", "builder = \"mme\"")).empty());
  for (const char* builder : {"mmmu", "mme"}) {
    CHECK_THAT(
        problems_of(
            changed(rolling, "text = \"{q}\"", "builder = \"" + std::string(builder) + "\"")),
        ContainsSubstring("own.toml:7: \"builder\" in [prompt] is \"" + std::string(builder)) &&
            ContainsSubstring("expected \"text\""));
  }
  CHECK_THAT(problems_of(rolling + "[columns]\nimages = \"i\"\n"),
             ContainsSubstring("own.toml:9: \"images\" in [columns]"));
}

TEST_CASE("the likeliest choice counts, the first of equal ones, and by length in characters") {
  Disk disk(std::string(kChoice),
            "{\"q\": \"1\", \"a\": 1, \"c\": [\"b\xc3\xa4\", \"abcd\"]}\n"
            "{\"q\": \"2\", \"a\": 0, \"c\": [\"x\", \"y\"]}\n"
            "{\"q\": \"3\", \"a\": [0, 1], \"c\": [\"x\", \"y\", \"z\"]}\n");
  const auto task = disk.open();
  CHECK(task->prompt(0, "")->continuations == std::vector<std::string>{"bä", "abcd"});

  const auto scores = scored(*task, {{{-3, 1, false}, {-4, 2, true}},
                                     {{-5, 1, false}, {-5, 1, false}},
                                     {{-9, 1, false}, {-8, 1, false}, {-7, 1, false}}});

  REQUIRE(scores.has_value());
  CHECK(scores->values == std::vector<double>{0, 1, 0});
  CHECK(scores->values_of.at("acc_norm") == std::vector<double>{1, 1, 0});
  CHECK(metric(*scores, "acc").value == 1.0 / 3);
  CHECK(metric(*scores, "acc").stderr_value.has_value());
  CHECK_THAT(scores->lines[0],
             ContainsSubstring("\"filtered_resps\": [[-3.0, false], [-4.0, true]]"));
  CHECK_THAT(scores->lines[0], ContainsSubstring("\"acc\": 0.0, \"acc_norm\": 1.0"));
}

TEST_CASE("a target that names none of the choices is refused before the model is asked") {
  for (const char* target : {"7", "-1", "\"none\"", "null", "[]", "[0, 2]"}) {
    Disk disk(std::string(kChoice),
              "\n{\"q\": \"1\", \"a\": " + std::string(target) + ", \"c\": [\"x\", \"y\"]}\n");
    const auto prompt = disk.open()->prompt(0, "");
    INFO(target);
    REQUIRE_FALSE(prompt.has_value());
    CHECK(prompt.error().code == ErrorCode::kCorruption);
    CHECK_THAT(prompt.error().message,
               ContainsSubstring("own: document 0: /t/val.jsonl:2: column \"a\": the target"));
  }
}

TEST_CASE("an empty choice is refused before the model is asked, a fixed one with the file") {
  Disk of_column(std::string(kChoice), "{\"q\": \"1\", \"a\": 0, \"c\": [\"x\", \"\"]}\n");
  Disk of_template(changed(kChoice, "\"c\"", "[\"no\", \"{c}\"]"),
                   "{\"q\": \"1\", \"a\": 0, \"c\": \"\"}\n");

  CHECK_THAT(of_column.open()->prompt(0, "").error().message,
             ContainsSubstring("/t/val.jsonl:1: column \"c\": choice 1 is empty"));
  CHECK_THAT(of_template.open()->prompt(0, "").error().message,
             ContainsSubstring("/t/val.jsonl:1: [request] choices: choice 1 is empty"));
  CHECK_THAT(problems_of(changed(kChoice, "\"c\"", "[\"yes\", \"\"]")),
             ContainsSubstring("own.toml:8: \"choices\" in [request] has an empty text"));
}

TEST_CASE("nothing and lists are never scored as Python writes them") {
  const std::string likely =
      changed(kChoice, "kind = \"multiple_choice\"\nchoices = \"c\"", "kind = \"loglikelihood\"");
  struct Case {
    std::string file, line;
  };
  for (const auto& [file, line] :
       {Case{std::string(kChoice), R"({"q": null, "a": 0, "c": ["x", "y"]})"},
        Case{std::string(kChoice), R"({"q": "1", "a": 0, "c": ["x", null]})"},
        Case{std::string(kChoice), R"({"q": "1", "a": 0, "c": ["x", ["y"]]})"},
        Case{likely, R"({"q": "1", "a": null})"}, Case{likely, R"({"q": "1", "a": ["x", "y"]})"},
        Case{likely, R"({"q": "1", "a": {"x": 1}})"}}) {
    INFO(line);
    Disk disk(file, line + "\n");
    const auto prompt = disk.open()->prompt(0, "");
    REQUIRE_FALSE(prompt.has_value());
    CHECK(prompt.error().code == ErrorCode::kCorruption);
    CHECK_THAT(prompt.error().message, ContainsSubstring("document 0: /t/val.jsonl:1: column \""));
  }
}

TEST_CASE("a loss weighs every token alike and its error every document") {
  Disk disk(std::string(kLoss),
            "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}\n"
            "{\"messages\": [{\"role\": \"assistant\", \"content\": \"y\"}]}\n");

  const auto scores = scored(*disk.open(), {{{-1, 2, false}}, {{-3, 3, true}, {-4, 3, true}}});

  REQUIRE(scores.has_value());
  const protocol::Metric& loss = metric(*scores, "loss");
  CHECK(loss.value == 1.0);  // 8 of 8 tokens
  CHECK(loss.stderr_value == 0.25);
  CHECK(loss.stderr_source == "clustered");
  CHECK_FALSE(loss.higher_is_better);
  CHECK(metric(*scores, "perplexity").value == std::exp(1.0));
  CHECK(scores->values == std::vector<double>{0.5, 7.0 / 6});
}

TEST_CASE("a conversation of which nothing is left has no tokens in the loss") {
  Disk disk(std::string(kLoss),
            "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}\n"
            "{\"messages\": [{\"role\": \"assistant\", \"content\": \"y\"}]}\n"
            "{\"messages\": [{\"role\": \"assistant\", \"content\": \"z\"}]}\n");
  const auto task = disk.open();

  const auto scores = scored(*task, {{{-1, 2, false}}, {}, {{-7, 6, true}}});
  const auto nothing = scored(*task, {{}, {}});

  REQUIRE(scores.has_value());
  const protocol::Metric& loss = metric(*scores, "loss");
  CHECK(loss.value == 1.0);          // 8 of 8 tokens
  CHECK(loss.stderr_value == 0.25);  // of two documents
  CHECK(scores->result.n == 3);
  CHECK(std::isnan(scores->values[1]));
  CHECK_THAT(scores->lines[1], ContainsSubstring("\"loss\": null, \"perplexity\": null") &&
                                   ContainsSubstring("\"filtered_resps\": []"));
  REQUIRE_FALSE(nothing.has_value());
  CHECK_THAT(nothing.error().message, ContainsSubstring("own: of none of its 2 documents"));
}

TEST_CASE("likelihoods read back to the same bits, and nothing else is taken for them") {
  const std::vector<Likelihood> some = {{-0.1, 3, true}, {-1e-300, 1, false}, {0, 1, true}};

  CHECK(decode_likelihoods(encode_likelihoods(some)).value() == some);
  CHECK(decode_likelihoods(encode_likelihoods({})).value().empty());
  for (const char* text : {"", "a word", "[[1,true,1]]", "[[-1,true,0]]", "[[-1,1,1]]",
                           "[[null,true,1]]", "[[-1,true]]", "{}"}) {
    INFO(text);
    CHECK_FALSE(decode_likelihoods(text).has_value());
  }
}

TEST_CASE("messages name their pictures or take them from the document's columns") {
  const auto read = [](std::string_view name) -> Result<std::string> {
    return "bytes of " + std::string(name);
  };
  const Value messages = Value::parse(R"([
    {"role": "user", "content": [{"type": "image", "image": "a.png", "text": null},
      {"type": "image_url", "image_url": {"url": "b.png"}}, {"type": "image"}, {"type": "text", "text": "?"}]},
    {"role": "assistant", "content": "!"}])");

  const auto found = read_conversation(messages, {"own"}, read);
  const auto as_text = read_conversation(Value(messages.dump()), {"own"}, read);

  REQUIRE(found.has_value());
  CHECK(found->images == std::vector<std::string>{"bytes of a.png", "bytes of b.png", "own"});
  CHECK(found->messages[0].content.size() == 4);
  CHECK(as_text->messages == found->messages);
  CHECK_FALSE(read_conversation(messages, {}, read).has_value());
  CHECK_FALSE(read_conversation(messages, {"own", "another"}, read).has_value());
}
