#include "evaluator/service/previous_answers.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <numeric>
#include <set>

namespace {

using namespace evalcar::service;
using evalcar::engine::Request;

using Tokens = std::vector<std::int32_t>;

Request request() {
  Request made;
  made.tokens = {5, 6, 7};
  made.generation.stop_ids = {2};
  return made;
}

const std::array<evalcar::Sha256Digest, 2> kPictures = {};

std::uint64_t question(const Request& asked = request()) {
  return question_of("run-1 regular", "docvqa_val", 3, asked, kPictures);
}

}  // namespace

TEST_CASE("what was answered last to a question is found, and nothing where it was not asked") {
  PreviousAnswers answers;
  answers.keep(1, {4, 5});
  answers.keep(1, {6});

  REQUIRE(answers.find(1) != nullptr);
  CHECK(*answers.find(1) == Tokens{6});
  CHECK(answers.find(2) == nullptr);
}

TEST_CASE("an answer without tokens is one, too") {
  PreviousAnswers answers;
  answers.keep(1, {});

  REQUIRE(answers.find(1) != nullptr);
  CHECK(answers.find(1)->empty());
}

TEST_CASE("beyond the limit of memory those go that were asked for least recently") {
  PreviousAnswers one;
  one.keep(0, Tokens(100));
  PreviousAnswers answers(3 * one.bytes());
  for (const std::uint64_t question : {1, 2, 3}) answers.keep(question, Tokens(100));
  answers.find(1);

  answers.keep(4, Tokens(100));

  CHECK(answers.find(1) != nullptr);
  CHECK(answers.find(2) == nullptr);
  CHECK(answers.find(3) != nullptr);
  CHECK(answers.find(4) != nullptr);
  CHECK(answers.bytes() == 3 * one.bytes());
}

TEST_CASE("memory is counted, whatever is kept, replaced and dropped") {
  PreviousAnswers answers(10'000);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    answers.keep(i % 7, Tokens(i % 400));
    CHECK(answers.bytes() <= 10'000);
  }
  std::size_t kept = 0;
  for (std::uint64_t question = 0; question < 7; ++question) {
    if (const auto* const found = answers.find(question); found != nullptr) {
      PreviousAnswers alone;
      alone.keep(question, *found);
      kept += alone.bytes();
    }
  }
  CHECK(kept == answers.bytes());
  CHECK(kept > 5'000);
}

TEST_CASE("an answer that is larger than all the memory there is is not kept") {
  PreviousAnswers answers(1000);

  answers.keep(1, Tokens(1000));

  CHECK(answers.find(1) == nullptr);
  CHECK(answers.bytes() == 0);
}

TEST_CASE("another series, task, document, prompt, picture or setting is another question") {
  std::set<std::uint64_t> questions = {question()};
  questions.insert(question_of("run-1 ema", "docvqa_val", 3, request(), kPictures));
  questions.insert(question_of("run-1 regular", "textvqa_val", 3, request(), kPictures));
  questions.insert(question_of("run-1 regular", "docvqa_val", 4, request(), kPictures));
  questions.insert(
      question_of("run-1 regular", "docvqa_val", 3, request(), std::span(kPictures).first(1)));
  auto others = kPictures;
  others.back().back() = 1;
  questions.insert(question_of("run-1 regular", "docvqa_val", 3, request(), others));
  const std::vector<std::function<void(Request&)>> changes = {
      [](Request& r) { r.tokens.back() = 8; },
      [](Request& r) { r.tokens.push_back(8); },
      [](Request& r) { r.generation.max_new_tokens = 7; },
      [](Request& r) { r.generation.temperature = 0.5; },
      [](Request& r) { r.generation.top_p = 0.5; },
      [](Request& r) { r.generation.top_k = 5; },
      [](Request& r) { r.generation.repetition_penalty = 1.05; },
      [](Request& r) { r.generation.stop_ids = {2, 3}; },
      [](Request& r) { r.generation.seed = 5; },
  };
  for (const auto& change : changes) {
    Request changed = request();
    change(changed);
    questions.insert(question(changed));
  }

  CHECK(questions.size() == 6 + changes.size());
  CHECK(question() == question());
}

TEST_CASE("what was answered before, and how long, does not belong to the question") {
  Request drafted = request();
  drafted.draft = {1, 2};
  drafted.expected_tokens = 2;

  CHECK(question(drafted) == question());
}
