#include "evaluator/tasks/prompt.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar::tasks;

TEST_CASE("a template takes settings before columns and passes filters") {
  const Value document = {{"q", "wHAT?"}, {"options", {"x", "y"}}, {"n", 3}, {"post", "column"}};
  const Settings settings = {{"post", Setting(std::string("!"))}};

  CHECK(render_template("{q|capitalize}{post}", settings, document).value() == "What?!");
  CHECK(render_template("{options|letters}/{options|join}", settings, document).value() ==
        "A. x\nB. y/x, y");
  CHECK(render_template("{{{n}}}", settings, document).value() == "{3}");
  CHECK_FALSE(render_template("{missing}", settings, document).has_value());
}

TEST_CASE("a family without a variant uses the default and one with its own uses that alone") {
  PromptDefinition prompt;
  prompt.variants = {{"default", {{"a", Setting(std::string("1"))}}},
                     {"qwen3_vl", {{"b", Setting(std::string("2"))}}}};

  CHECK(variant_of(prompt, "qwen2_5_vl").front().first == "a");
  CHECK(variant_of(prompt, "qwen3_vl").front().first == "b");
  CHECK(variant_of(PromptDefinition{}, "x").empty());
}
