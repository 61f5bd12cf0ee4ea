#include "evaluator/metrics/mmmu.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

using namespace evalcar::metrics;

namespace {
const std::vector<std::string> kOptions = {"$6", "$7", "red cat", "blue dog"};
}

TEST_CASE("the last letter in brackets is the choice") {
  CHECK(parse_multiple_choice("(A) or (B)", kOptions) == 1);
  CHECK(parse_multiple_choice("So C, not (D)", kOptions) == 3);
}

TEST_CASE("a response without a letter is searched for the options' texts when it is long enough") {
  CHECK(parse_multiple_choice("I think it is the red cat in the picture here", kOptions) == 2);
  CHECK_FALSE(parse_multiple_choice("red cat", kOptions).has_value());
}

TEST_CASE("an open answer gives its text and its numbers") {
  const auto candidates = parse_open_response("The answer is 3,000.");
  CHECK(candidates == std::vector<OpenCandidate>{3000.0, 0.0});
  CHECK(open_answer_is_correct(std::vector<std::string>{"3000"}, candidates));
}

TEST_CASE("an options column that is no list says where it stops being one") {
  const auto list = parse_python_list("['a', b]");
  REQUIRE_FALSE(list.has_value());
  CHECK(list.error().message.find("at character 6") != std::string::npos);
}

TEST_CASE("every cut of a list of strings is an error and never a crash") {
  const std::string whole = "['it\\'s', \"x\\u00e9\", r'''y''', 'z']";
  REQUIRE(parse_python_list(whole).has_value());
  for (std::size_t n = 0; n < whole.size(); ++n) {
    CHECK_FALSE(parse_python_list(whole.substr(0, n)).has_value());
  }
}

TEST_CASE("the subject is what stands between the split and the number") {
  CHECK(subject_of_id("validation_Art_Theory_7") == "Art_Theory");
  CHECK_FALSE(subject_of_id("Art").has_value());
}
