#include "evaluator/metrics/text_scorers.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

using namespace evalcar::metrics;
using Strings = std::vector<std::string>;

TEST_CASE("an answer without references has no ANLS") {
  CHECK_FALSE(anls(Strings{}, "x").has_value());
}

TEST_CASE("ANLS takes the best reference and cuts below one half") {
  CHECK(anls(Strings{"a", "abcd"}, "abcx") == 0.75);
  CHECK(anls(Strings{"ab"}, "abcd") == 0.5);
  CHECK(anls(Strings{"yes"}, "no") == 0.0);
  CHECK(anls(Strings{""}, "") == 1.0);
}

TEST_CASE("the answer A normalises to nothing and so agrees with every article") {
  CHECK(vqa_normalise("A").empty());
  CHECK(vqa_accuracy(Strings(10, "the"), "a") == 1.0);
}

TEST_CASE("VQA accuracy leaves out the answer it is compared for") {
  Strings answers(3, "a cat");
  answers.resize(10, "dog");
  CHECK(vqa_accuracy(answers, "cat") == 0.9);
}

TEST_CASE("exact match can ignore case and punctuation") {
  CHECK(exact_match(Strings{"Yes."}, "yes", {}) == 0);
  CHECK(exact_match(Strings{"no", "Yes."}, "yes",
                    {.ignore_case = true, .ignore_punctuation = true}) == 1);
}

TEST_CASE("contains looks for the reference in the answer") {
  CHECK(contains_match(Strings{"Paris"}, "it is paris.", true) == 1);
  CHECK(contains_match(Strings{"Paris"}, "it is paris.", false) == 0);
}
