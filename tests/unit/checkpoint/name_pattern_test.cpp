#include "store/checkpoint/name_pattern.h"

#include <catch2/catch_test_macros.hpp>
#include <chrono>

using namespace evalcar;
using namespace evalcar::checkpoint;

namespace {

bool matches(std::string_view pattern, std::string_view name) {
  const auto compiled = NamePattern::compile(pattern);
  REQUIRE(compiled.has_value());
  return compiled->matches(name);
}

bool is_refused(std::string_view pattern) {
  const auto compiled = NamePattern::compile(pattern);
  return !compiled.has_value() && compiled.error().code == ErrorCode::kUnsupported;
}

}  // namespace

// Each expectation is what Python's re.match(rf"(.*\.)?({pattern})$", name) gives.
TEST_CASE("a plain pattern matches whole parts at the end of a name") {
  CHECK(matches("q_proj", "q_proj"));
  CHECK(matches("q_proj", "model.layers.0.self_attn.q_proj"));
  CHECK(matches("self_attn.q_proj", "model.layers.0.self_attn.q_proj"));
  CHECK_FALSE(matches("q_proj", "model.layers.0.self_attn.qq_proj"));
  CHECK_FALSE(matches("q_proj", "model.q_proj.inner"));
  CHECK_FALSE(matches("proj", "model.q_proj"));
  CHECK(matches("layers.1.x", "layers_1.x"));  // an unescaped dot is any character
  CHECK_FALSE(matches("layers\\.1\\.x", "layers_1.x"));
  CHECK(matches("layers\\.1\\.x", "layers.1.x"));
  CHECK(matches("^model.q", "model.q"));
  CHECK_FALSE(matches("^q", "model.q"));
  CHECK(NamePattern::compile("^model.layers\\.0-x_1")->states() == 0);
}

TEST_CASE("classes, groups, repeats and alternatives match as Python's") {
  const char* const name = "model.layers.12.mlp.up_proj";
  CHECK(matches("(up|down)_proj", name));
  CHECK(matches("(?:gate|up)_proj", name));
  CHECK_FALSE(matches("(gate|down)_proj", name));
  CHECK(matches("layers\\.\\d+\\.mlp\\..*", name));
  CHECK_FALSE(matches("layers\\.\\d\\.mlp\\..*", name));
  CHECK(matches("layers.[0-9]+.mlp.up_proj", name));
  CHECK(matches("layers.[^a-z]+.mlp.up_proj", name));
  CHECK(matches("[a-z_]+", name));
  CHECK(matches(".*", name));
  CHECK(matches("layers\\.1{1}2?.*", name));
  CHECK(matches("layers\\.\\d{2}\\.mlp.*?", name));
  CHECK(matches("layers\\.\\d{1,3}\\.mlp.+", name));
  CHECK_FALSE(matches("layers\\.\\d{3,}\\.mlp.+", name));
  CHECK(matches("^model\\..*_proj$", name));
  CHECK(matches("up_proj|down_proj", name));
  CHECK(matches("a|b|", "x."));  // the empty alternative, behind a dot
  CHECK_FALSE(matches("a|b|", "x"));
  CHECK(matches("[]x]+", "a.]x"));  // a bracket at the beginning is a member
  CHECK(matches("[a\\-z]", "-"));
  CHECK(matches("(a*)*b", "aaab"));
  CHECK_FALSE(matches("(a*)*b", "aaac"));
  CHECK(matches("(ab){2}", "abab"));
  CHECK_FALSE(matches("(ab){2}", "ab"));
  CHECK(matches("x{0}", "y."));
}

TEST_CASE("what is not understood is refused, never guessed") {
  for (const char* const pattern :
       {"(?=a)", "(?!a)", "(?<=a)b", "(?i)a", "(?P<n>a)", "\\1",  "(a)\\1", "\\b",
        "\\Z",   "\\x41", "*a",      "a**",   "a{",       "a{x}", "a{2,1}", "a{999}",
        "(a",    "a)",    "[a",      "[z-a]", "a\\",      "é"}) {
    INFO(pattern);
    CHECK(is_refused(pattern));
  }
  CHECK(is_refused("((((a{200}){200}){200}){200})"));                  // states
  CHECK(is_refused(std::string(5000, '(') + std::string(5000, ')')));  // depth
}

TEST_CASE("a pattern that makes a backtracking matcher hang is matched at once") {
  const auto pattern = NamePattern::compile("(a*)*(a*)*(a|aa)+(.*.*.*)*z");
  REQUIRE(pattern.has_value());
  const std::string name(20'000, 'a');
  const auto start = std::chrono::steady_clock::now();
  CHECK_FALSE(pattern->matches(name));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
}
