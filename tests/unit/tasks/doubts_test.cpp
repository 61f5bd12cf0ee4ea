#include "evaluator/tasks/doubts.h"

#include <catch2/catch_test_macros.hpp>

#include "evaluator/tasks/task.h"

using namespace evalcar::tasks;

namespace {

std::vector<Response> answers(std::size_t count) {
  std::vector<Response> made;
  for (std::size_t i = 0; i < count; ++i)
    made.push_back({static_cast<std::int64_t>(i), "answer " + std::to_string(i), 3});
  return made;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("answers that differ, end and can be read raise no doubt") {
  CHECK(doubts_about(answers(100), {}).empty());
  CHECK(
      doubts_about(answers(100), {.cut_off = 20, .max_new_tokens = 16, .unreadable = 20}).empty());
}

TEST_CASE("a model that answers everything alike is doubted, unless there are too few answers") {
  auto alike = answers(kFewestForDoubt);
  for (Response& answer : alike) answer.text = "!\x1b!";
  CHECK(doubts_about(alike, {}) == Texts{"all 20 answers are the same: \"!\\x1b!\""});
  alike.resize(kFewestAlike);
  CHECK(doubts_about(alike, {}) == Texts{"all 5 answers are the same: \"!\\x1b!\""});
  alike.pop_back();
  CHECK(doubts_about(alike, {}).empty());

  auto few = answers(kFewestForDoubt - 1);
  CHECK(doubts_about(few, {.cut_off = 19, .max_new_tokens = 16, .unreadable = 19}).empty());

  auto blank = answers(100);
  for (std::size_t i = 0; i < 21; ++i) blank[i].text = " \n";
  CHECK(doubts_about(blank, {}) == Texts{"21 of 100 answers are empty"});
}

TEST_CASE("a long answer that all have in common is shown in part, in whole characters") {
  auto alike = answers(20);
  for (Response& answer : alike) answer.text = std::string(59, 'x') + "äää";
  CHECK(doubts_about(alike, {}) ==
        Texts{"all 20 answers are the same: \"" + std::string(59, 'x') + "…\""});
}

TEST_CASE("more than a fifth of answers that are cut off or say nothing readable is told") {
  const AnswerFacts facts{.cut_off = 21, .max_new_tokens = 16, .unreadable = 30};
  CHECK(doubts_about(answers(100), facts) ==
        Texts{"21 of 100 answers were cut off at max_new_tokens = 16",
              "30 of 100 answers name none of the options"});
}
