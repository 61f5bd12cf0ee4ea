#include "evaluator/service/answers.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

using namespace evalcar;
using service::answers_requests;

namespace {

engine::Request scored(std::vector<engine::TokenSpan> spans,
                       std::vector<std::vector<std::int32_t>> continuations) {
  engine::Request request{.tokens = {1, 2, 3, 4, 5, 6}};
  request.scoring = engine::Scoring{std::move(spans), std::move(continuations)};
  return request;
}

tasks::Response stored(const std::string& text, std::int64_t tokens) {
  return {.doc_id = 0, .text = text, .output_tokens = tokens};
}

}  // namespace

TEST_CASE("stored likelihoods are of as many choices, each of as many tokens, as are asked for") {
  const std::vector<engine::Request> choices = {scored({}, {{7}, {8, 9}})};

  CHECK(answers_requests(stored("[[-1.5,false,1],[-2,true,2]]", 3), choices));
  struct Case {
    const char* text;
    std::int64_t tokens;
  };
  for (const auto& [text, tokens] :
       {Case{"[[-1.5,false,1],[-2,true,3]]", 4}, Case{"[[-1.5,false,2],[-2,true,1]]", 3},
        Case{"[[-1.5,false,3]]", 3}, Case{"[[-1.5,false,1],[-2,true,2],[-2,true,1]]", 4},
        Case{"[[-1.5,false,1],[-2,true,2]]", 2}, Case{"[[0.5,false,1],[-2,true,2]]", 3},
        Case{"[[-1.5,false,1],[-2,tr", 3}, Case{"a word", 3}, Case{"", 3}}) {
    INFO(text);
    CHECK_FALSE(answers_requests(stored(text, tokens), choices));
  }
}

TEST_CASE("stored likelihoods are of the spans of all windows in their order") {
  const std::vector<engine::Request> windows = {scored({{1, 4}, {5, 6}}, {}), scored({{4, 6}}, {})};

  CHECK(answers_requests(stored("[[-1,false,3],[-1,false,1],[-1,false,2]]", 6), windows));
  CHECK_FALSE(answers_requests(stored("[[-1,false,2],[-1,false,3],[-1,false,1]]", 6), windows));
  CHECK_FALSE(answers_requests(stored("[[-1,false,3],[-1,false,1]]", 4), windows));
}

TEST_CASE("what was generated is an answer whatever it says") {
  CHECK(answers_requests(stored("[[-1", 2), std::vector<engine::Request>{{.tokens = {1}}}));
}
