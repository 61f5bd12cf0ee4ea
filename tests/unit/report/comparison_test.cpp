#include "agent/report/comparison.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "agent/report/direction.h"
#include "agent/report/sample_score.h"
#include "tests/unit/state/scenario.h"

using namespace evalcar;
using namespace evalcar::report;
using nlohmann::json;
using test::must;

namespace {

json sample(std::int64_t doc, double score, const std::string& answer,
            const std::string& input = "what?") {
  return {{"doc_id", doc},
          {"target", {"A", "a"}},
          {"filtered_resps", {answer}},
          {"input", input + std::to_string(doc)},
          {"anls", score}};
}

struct Pair {
  test::Scenario s;
  bool higher_is_better = true;
  std::map<std::int64_t, std::string> pictures;  ///< of documents
  std::string config = "{}";                     ///< of the task, as lmms-eval's results have it
  std::int64_t scored(std::int64_t step, const std::vector<json>& lines) {
    const std::int64_t id = s.plan(step).id;
    s.bring(id, state::EvaluationState::kEvaluating, "w" + std::to_string(step));
    std::vector<protocol::Scored> samples;
    for (const json& line : lines) {
      const auto doc = line["doc_id"].get<std::int64_t>();
      samples.push_back({"", "docvqa_val", doc, line.dump(), "f1"});
      if (pictures.contains(doc)) samples.back().pictures = {pictures[doc]};
    }
    must(s.store->record_samples(id, samples));
    protocol::EvaluationResult result;
    result.weights_sha256 = "w" + std::to_string(step);
    result.tasks = {test::anls_result("docvqa_val", 0.5)};
    result.tasks[0].metrics[0].higher_is_better = higher_is_better;
    result.tasks[0].lmms_config = config;
    must(s.store->record_result(id, result));
    return id;
  }
  Comparison compare(std::int64_t a, std::int64_t b, const std::string& metric = "anls") {
    return must(compare_samples(s.store->read(), a, b, "docvqa_val", metric));
  }
};

}  // namespace

TEST_CASE("samples that became right or wrong are told with both answers") {
  Pair pair;
  const auto a = pair.scored(1, {sample(0, 1, "A"), sample(1, 0, "x"), sample(2, 0.7, "a?")});
  const auto b = pair.scored(2, {sample(0, 0, "y"), sample(1, 1, "A"), sample(2, 0.9, "a")});
  const Comparison compared = pair.compare(a, b);
  REQUIRE(compared.became_right.size() == 1);
  CHECK(compared.became_right[0].doc_id == 1);
  CHECK(compared.became_right[0].answer_a == "x");
  CHECK(compared.became_right[0].answer_b == "A");
  CHECK(compared.became_right[0].expected == "A | a");
  REQUIRE(compared.became_wrong.size() == 1);
  CHECK(compared.became_wrong[0].doc_id == 0);
  REQUIRE(compared.test.has_value());
  CHECK(compared.test->n == 3);
  CHECK(compared.test->name == "sign-flip permutation");
  CHECK(compared.note.empty());
}

TEST_CASE("where less is better, a question became right whose number fell") {
  Pair pair{.higher_is_better = false};
  const auto a = pair.scored(1, {sample(0, 1, "x"), sample(1, 0, "A"), sample(2, 3.5, "?")});
  const auto b = pair.scored(2, {sample(0, 0.25, "A"), sample(1, 2, "x"), sample(2, 1.5, "!")});

  const Comparison compared = pair.compare(a, b);

  REQUIRE(compared.became_right.size() == 1);
  CHECK(compared.became_right[0].doc_id == 0);
  REQUIRE(compared.became_wrong.size() == 1);
  CHECK(compared.became_wrong[0].doc_id == 1);
}

TEST_CASE("which way is better is known by the numbers of the evaluation, or of its run") {
  Pair pair{.higher_is_better = false};
  const auto a = pair.scored(1, {sample(0, 1, "x")});
  const auto open = pair.s.plan(2).id;
  const state::Reader& reader = pair.s.store->read();

  CHECK_FALSE(must(higher_is_better(reader, a, "docvqa_val", "anls")));
  CHECK_FALSE(must(higher_is_better(reader, open, "docvqa_val", "anls")));
  CHECK(must(higher_is_better(reader, a, "docvqa_val", "other")));
  CHECK(higher_is_better(reader, 99, "docvqa_val", "anls").error().code == ErrorCode::kNotFound);
}

TEST_CASE("only samples of the same question are paired") {
  Pair pair;
  const auto a = pair.scored(1, {sample(0, 1, "A"), sample(1, 1, "A")});
  const auto other = pair.scored(2, {sample(0, 0, "x", "why?"), sample(1, 0, "x", "why?")});
  const auto part = pair.scored(3, {sample(1, 0, "x"), sample(7, 1, "A")});
  CHECK_FALSE(pair.compare(a, other).test.has_value());
  CHECK(pair.compare(a, other).became_wrong.empty());
  CHECK(pair.compare(a, other).note == "the two were asked other questions");
  const Comparison some = pair.compare(a, part);
  REQUIRE(some.test.has_value());
  CHECK(some.test->n == 1);
  CHECK(some.note == "only 1 samples have a partner");
}

TEST_CASE("questions about the same picture are one group, others are alone") {
  Pair pair;
  pair.pictures = {{0, "p"}, {1, "p"}, {2, "q"}};
  std::vector<json> before, after;
  for (std::int64_t doc = 0; doc < 5; ++doc) {
    before.push_back(sample(doc, 0, "x"));
    after.push_back(sample(doc, 1, "A"));
  }

  const Comparison compared = pair.compare(pair.scored(1, before), pair.scored(2, after));

  REQUIRE(compared.test.has_value());
  CHECK(compared.test->n == 5);
  CHECK(compared.test->groups == 4);
  CHECK(compared.is_whole);
}

TEST_CASE("where questions belong together by a column that no sample tells, there is no test") {
  Pair pair{.config = R"({"task": "passages", "cluster_key": "passage"})"};
  std::vector<json> before, after;
  for (std::int64_t doc = 0; doc < 10; ++doc) {
    before.push_back(sample(doc, 0, "x"));
    after.push_back(sample(doc, 1, "A"));
  }

  const Comparison compared = pair.compare(pair.scored(1, before), pair.scored(2, after));

  CHECK_FALSE(compared.test.has_value());
  CHECK(compared.is_whole);
  CHECK(compared.became_right.size() == 10);
  CHECK(compared.untested.starts_with("no test: questions of one passage"));
  CHECK(compared.note.empty());
}

TEST_CASE("a metric over tokens is compared by its tokens") {
  const auto line = [](std::int64_t doc, double log_likelihood, std::int64_t tokens) {
    const double loss = -log_likelihood / static_cast<double>(tokens);
    return json{{"doc_id", doc},
                {"target", ""},
                {"input", std::to_string(doc)},
                {"filtered_resps", {{log_likelihood, false}}},
                {"token_counts", {{{"output_tokens", tokens}}}},
                {"loss", loss},
                {"perplexity", std::exp(loss)},
                {"bits_per_byte", {log_likelihood, 4 * tokens}}};
  };
  Pair pair;
  const auto a = pair.scored(1, {line(0, -3, 1), line(1, -20, 10)});
  const auto b = pair.scored(2, {line(0, -4, 1), line(1, -10, 10)});
  const auto other = pair.scored(3, {line(0, -4, 2), line(1, -10, 10)});

  CHECK(pair.compare(a, b, "loss").value_a == Catch::Approx(23.0 / 11));
  CHECK(pair.compare(a, b, "loss").value_b == Catch::Approx(14.0 / 11));
  CHECK(pair.compare(a, b, "perplexity").value_a == Catch::Approx(std::exp(23.0 / 11)));
  CHECK(pair.compare(a, b, "bits_per_byte").value_a == Catch::Approx(23.0 / 44 / std::log(2.0)));
  // Other tokens are another question.
  CHECK(pair.compare(a, other, "loss").test->n == 1);
  CHECK_FALSE(pair.compare(a, other, "loss").is_whole);
  // A continuation's line tells its log-likelihood.
  const auto continuation = [](std::int64_t doc, double log_likelihood) {
    return json{{"doc_id", doc}, {"input", std::to_string(doc)}, {"perplexity", log_likelihood}};
  };
  const auto c = pair.scored(4, {continuation(0, -1), continuation(1, -2)});
  CHECK(pair.compare(c, c, "perplexity").value_a == Catch::Approx(std::exp(1.5)));
}

TEST_CASE("without samples there is no test, and the note says so") {
  Pair pair;
  const auto a = pair.scored(1, {sample(0, 1, "A")});
  const auto none = pair.scored(2, {});
  CHECK(pair.compare(a, none).note.starts_with("no samples are stored"));
  const Comparison unknown =
      must(compare_samples(pair.s.store->read(), a, a, "docvqa_val", "exact_match"));
  CHECK(unknown.note == "the samples do not tell this metric");
}

TEST_CASE("a sample's score is a number, an object's score, or whether MMMU's answer agrees") {
  const auto mmmu = [](const json& answer, const json& parsed) {
    return sample_score({{"mmmu_acc", {{"answer", answer}, {"parsed_pred", {parsed}}}}},
                        "mmmu_acc");
  };
  CHECK(sample_score({{"acc", 0.3}}, "acc") == 0.3);
  CHECK(sample_score({{"acc", true}}, "acc") == 1.0);
  CHECK(sample_score({{"acc", {{"score", 2}}}}, "acc") == 2.0);
  CHECK(mmmu("B", "B") == 1.0);
  CHECK(mmmu("B", "C") == 0.0);
  CHECK(mmmu(json::array({"A", "B"}), "B") == 1.0);
  CHECK(mmmu("", "") == 0.0);
  CHECK(mmmu("3.14", json::array({3.14, "pi"})) == 1.0);
  CHECK(mmmu("paris", json::array({"in paris"})) == 1.0);
  CHECK(mmmu("rome", json::array({"in paris"})) == 0.0);
  CHECK_FALSE(sample_score({{"acc", "high"}}, "acc").has_value());
  CHECK_FALSE(sample_score({{"acc", {{"x", 1}}}}, "acc").has_value());
  CHECK_FALSE(sample_score(json::array(), "acc").has_value());
  CHECK_FALSE(sample_score(json(), "acc").has_value());
}

TEST_CASE("an answer for people is cut between characters") {
  CHECK(answer_text("ä", 10) == "ä");
  CHECK(answer_text("aää", 4) == "aä…");
  CHECK(answer_text(json::array({"a", 1, json::array({"b"})}), 99) == "a | 1 | b");
  CHECK(answer_text(json(), 9).empty());
}
