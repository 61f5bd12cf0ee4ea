#include "agent/http/json_body.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

using namespace evalcar;
using namespace evalcar::http;

TEST_CASE("an ordinary body is read") {
  const auto body = parse_body(R"({"model":"m","tasks":["a","b"],"limit":8,"x":{"model":1}})");

  REQUIRE(body.has_value());
  CHECK((*body)["tasks"].size() == 2);
  CHECK((*body)["limit"] == 8);
}

TEST_CASE("what is no JSON is told from what is too much of it") {
  for (const char* const broken : {"", "{", "nope", R"({"a":NaN})", "{} {}", "\"\xff\""}) {
    CHECK(parse_body(broken).error().code == ErrorCode::kInvalidArgument);
  }
  const std::string deep(50'000, '[');  // whether it ends is not asked any more
  for (const std::string& bomb :
       {deep, std::string(R"({"a":1,"a":2})"), std::string(R"([1e999])")}) {
    CHECK(parse_body(bomb).error().code == ErrorCode::kUnsupported);
  }
}

TEST_CASE("a body that is meant to break the reader is refused") {
  std::string many = "[0";
  for (int i = 0; i < 20'000; ++i) many += ",0";
  many += "]";
  for (const std::string& wrong :
       {std::string(), std::string("{"), std::string("nope"), std::string(R"({"a":1,"a":2})"),
        std::string(R"({"a":1e999})"), std::string(R"({"a":NaN})"), std::string("{} {}"),
        std::string(50'000, '['), "[" + std::string(40, '[') + std::string(40, ']') + "]", many,
        std::string("\"\xff\"")}) {
    CAPTURE(wrong.substr(0, 60));
    CHECK_FALSE(parse_body(wrong).has_value());
  }
  CHECK(parse_body(std::string(32, '[') + std::string(32, ']')).has_value());
  CHECK_FALSE(parse_body(std::string(33, '[') + std::string(33, ']')).has_value());
}
