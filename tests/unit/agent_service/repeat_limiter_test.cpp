#include "agent/service/repeat_limiter.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

using namespace evalcar;
using namespace evalcar::agent_service;
using std::chrono::seconds;

namespace {
const MonotonicTime kStart{seconds(1000)};
}

TEST_CASE("a text is said five times a minute, and then with how often it was kept back") {
  RepeatLimiter limiter;
  for (int i = 0; i < 5; ++i) CHECK(limiter.admit("disk full", kStart) == 0U);
  for (int i = 0; i < 7; ++i) CHECK_FALSE(limiter.admit("disk full", kStart + seconds(59)));

  CHECK(limiter.admit("disk full", kStart + seconds(60)) == 7U);
  CHECK(limiter.admit("disk full", kStart + seconds(60)) == 0U);
}

TEST_CASE("another text is said whatever was kept back") {
  RepeatLimiter limiter;
  for (int i = 0; i < 9; ++i) (void)limiter.admit("disk full", kStart);

  CHECK(limiter.admit("disk slow", kStart) == 0U);
}

TEST_CASE("texts that differ only far behind count as the same") {
  RepeatLimiter limiter({.at_once = 1});
  const std::string head(400, 'x');
  CHECK(limiter.admit(head + "1", kStart).has_value());
  CHECK_FALSE(limiter.admit(head + "2", kStart).has_value());
}

TEST_CASE("ever new texts are remembered in bounded number, and the newest are limited still") {
  RepeatLimiter limiter({.at_once = 1, .remembered = 4});
  for (int i = 0; i < 1000; ++i) {
    const std::string text = "line " + std::to_string(i);
    CHECK(limiter.admit(text, kStart + seconds(i) / 50).has_value());
    CHECK_FALSE(limiter.admit(text, kStart + seconds(i) / 50).has_value());
  }
  CHECK(limiter.admit("line 0", kStart + seconds(20)) == 0U);  // forgotten
}
