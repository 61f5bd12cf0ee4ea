#include "agent/http/target.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar::http;

TEST_CASE("a target is taken apart and decoded once") {
  const auto target = parse_target("/jobs/a%20b?x=1&y=a+b%26&x=2&z#part");

  REQUIRE(target.has_value());
  CHECK(target->path == "/jobs/a b");
  CHECK(target->query.at("x") == "2");
  CHECK(target->query.at("y") == "a b&");
  CHECK(target->query.at("z").empty());
  CHECK(parse_target("/%252e%252e").value().path == "/%2e%2e");
}

TEST_CASE("a target that is none is refused") {
  for (const char* wrong :
       {"", "*", "http://x/", "/%", "/%4", "/%zz", "/a%00b", "/a%0ab", "/%7f"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_target(wrong).has_value());
  }
  std::string many = "/?";
  for (int i = 0; i < 100; ++i) many += "a" + std::to_string(i) + "=1&";
  CHECK_FALSE(parse_target(many).has_value());
}
