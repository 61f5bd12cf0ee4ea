#include "evaluator/metrics/mme.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar::metrics;

TEST_CASE("the first four characters of an answer decide between yes and no") {
  for (const char* yes : {"yes", "Yes.", " Y ", "y.", "ayes", "Yes, it is", "YES\n"})
    CHECK(mme_label(yes) == "yes");
  for (const char* no : {"no.", "N", "Not really", "nope", "know", "a no", "N.o"})
    CHECK(mme_label(no) == "no");
  for (const char* other : {"", "I say yes", "Unknown", "ja", "x", "ÿes", ".", "\xff\xff"})
    CHECK(mme_label(other) == "other");
}

TEST_CASE("a reference answer is yes or no and nothing that only begins so") {
  CHECK(mme_gold(" Yes. ") == "yes");
  CHECK(mme_gold("NO") == "no");
  CHECK_FALSE(mme_gold("y").has_value());
  CHECK_FALSE(mme_gold("no way").has_value());
  CHECK_FALSE(mme_gold("").has_value());
}

TEST_CASE("a picture earns its share of right answers and as much again for a whole pair") {
  const std::vector<MmeAnswer> answers = {{"count", "1", 1}, {"color", "1", 1}, {"count", "1", 1},
                                          {"count", "2", 0}, {"color", "1", 0}, {"count", "2", 1},
                                          {"count", "3", 0}, {"count", "3", 0}};

  const MmeScore score = mme_score(answers);

  CHECK(score.value == (200.0 + 50 + 0) / 3 + 50);
  CHECK(score.points == std::vector<std::vector<double>>{{200, 50, 0}, {50}});
}

TEST_CASE("a picture with one answer or three leaves no score") {
  std::vector<MmeAnswer> answers = {{"count", "1", 1}, {"count", "1", 1}, {"color", "1", 1}};
  CHECK_FALSE(mme_score(answers).value.has_value());
  CHECK(mme_score(answers).missing.find("question_id 1 of category color has 1") !=
        std::string::npos);
  answers[2].category = "count";
  CHECK_FALSE(mme_score(answers).value.has_value());
  CHECK_FALSE(mme_score({}).value.has_value());
}

TEST_CASE("whatever is not a category of perception counts for cognition") {
  CHECK(is_mme_perception("OCR"));
  CHECK_FALSE(is_mme_perception("ocr"));
  CHECK_FALSE(is_mme_perception("code_reasoning"));
}
