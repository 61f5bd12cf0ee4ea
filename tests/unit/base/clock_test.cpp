#include "store/base/clock.h"

#include <catch2/catch_test_macros.hpp>
#include <chrono>

#include "store/base/guarded.h"
#include "tests/unit/support/fake_clock.h"

using namespace evalcar;
using namespace std::chrono_literals;

TEST_CASE("times are written in UTC with microseconds") {
  CHECK(format_utc(WallTime{}) == "1970-01-01T00:00:00.000000Z");
  CHECK(format_utc(WallTime{1795251605123456us}) == "2026-11-21T09:00:05.123456Z");
  CHECK(format_utc(WallTime{951782400s}) == "2000-02-29T00:00:00.000000Z");
  CHECK(format_utc(WallTime{-1us}) == "1969-12-31T23:59:59.999999Z");
}

TEST_CASE("later times are larger texts") {
  const WallTime time{1795251605123456us};
  CHECK(format_utc(time) < format_utc(time + 1us));
  CHECK(format_utc(time) < format_utc(time + 10s));
}

TEST_CASE("the fake clock moves only when told, and its wall can jump alone") {
  test::FakeClock clock;
  const WallTime wall = clock.wall_now();
  const MonotonicTime monotonic = clock.monotonic_now();
  CHECK(clock.wall_now() == wall);

  clock.advance(3s);
  CHECK(clock.wall_now() - wall == 3s);
  CHECK(clock.monotonic_now() - monotonic == 3s);

  clock.jump_wall(-1h);
  CHECK(clock.wall_now() < wall);
  CHECK(clock.monotonic_now() - monotonic == 3s);
}

TEST_CASE("the machine's monotonic clock never goes back") {
  const SystemClock clock;
  MonotonicTime last = clock.monotonic_now();
  for (int i = 0; i < 1000; ++i) {
    const MonotonicTime now = clock.monotonic_now();
    REQUIRE(now >= last);
    last = now;
  }
}

TEST_CASE("a guarded value is reached only through its lock") {
  Guarded<int> value(3);
  value.with([](int& v) { v += 4; });
  CHECK(value.with([](const int& v) { return v; }) == 7);
}
