#include "agent/run/obstacles.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/support/fake_clock.h"

using namespace evalcar;
using namespace evalcar::run;
using std::chrono::minutes;
using std::chrono::seconds;

namespace {

struct Met {
  test::FakeClock clock;
  config::LimitSettings limits;
  Obstacles obstacles{clock, limits};

  Met() { limits.retry_delay = seconds(30); }
  std::chrono::milliseconds meet(std::string_view kind) {
    return obstacles.meet({.kind = std::string(kind), .stage = {}, .message = {}});
  }
};

}  // namespace

TEST_CASE("pauses for what is around the checkpoints double up to five minutes, and begin anew") {
  Met m;
  CHECK(m.obstacles.until() == m.clock.monotonic_now());
  CHECK(m.meet(protocol::kDeviceLost) == seconds(30));
  CHECK(m.obstacles.until() == m.clock.monotonic_now() + seconds(30));
  CHECK(m.meet(protocol::kDeviceLost) == seconds(60));
  for (int i = 0; i < 70; ++i) CHECK(m.meet(protocol::kDeviceLost) <= minutes(5));
  CHECK(m.meet(protocol::kDeviceLost) == minutes(5));

  CHECK(m.obstacles.standing().starts_with("nothing can be evaluated"));
  m.obstacles.clear();
  CHECK(m.obstacles.standing().empty());
  CHECK(m.meet(protocol::kDeviceLost) == seconds(30));

  m.obstacles.end_pause();
  CHECK(m.obstacles.until() == m.clock.monotonic_now());
  CHECK(m.obstacles.standing().empty());
  m.meet(protocol::kDeviceBusy);
  m.obstacles.forget_standing();
  CHECK(m.obstacles.standing().empty());
}

TEST_CASE("what does not come up may pass, as often as a checkpoint is tried") {
  Met m;
  m.limits.attempts = 2;
  const supervise::JobFailed busy{
      .kind = std::string(protocol::kDeviceBusy), .stage = {}, .message = {}};
  m.obstacles.meet(busy);
  CHECK(m.obstacles.may_pass(busy));
  m.obstacles.meet(busy);
  CHECK_FALSE(m.obstacles.may_pass(busy));
  CHECK_FALSE(Obstacles::is_of_configuration(busy));
}

TEST_CASE("missing data stand in the way until they are looked at, or a person says so") {
  Met m;
  m.meet(protocol::kData);
  CHECK(m.obstacles.of_data());
  m.obstacles.end_pause();
  CHECK(m.obstacles.of_data());
  m.obstacles.take_for_repaired();
  CHECK_FALSE(m.obstacles.of_data());
}
