// When status.json is written: at once while that costs nothing, and seldom enough where it costs
// much.
#include "agent/run/status_file.h"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/forwarding_file_system.h"
#include "tests/unit/support/temporary_directory.h"

using namespace evalcar;
using namespace evalcar::run;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

/// Making a file takes a while, by a clock that somebody moves.
class SlowFiles final : public test::ForwardingFileSystem {
 public:
  SlowFiles(FileSystem& below, test::FakeClock& clock)
      : ForwardingFileSystem(below), clock_(clock) {}
  Result<std::unique_ptr<WritableFile>> create(const std::string& path,
                                               std::uint32_t mode) override {
    clock_.advance(cost);
    return below().create(path, mode);
  }
  milliseconds cost{0};

 private:
  test::FakeClock& clock_;
};

struct Scene {
  test::TemporaryDirectory folder;
  test::FakeClock clock;
  RealFileSystem real;
  SlowFiles files{real, clock};
  std::unique_ptr<state::Store> store =
      std::move(state::Store::open(real, clock, folder / "state.db").value());
  config::PublishSettings settings;
  StatusFile status{files, clock, *store, settings};
  MonotonicTime started = clock.monotonic_now();

  /// Whether it was written in this turn.
  bool turn(StatusTurn turn, MonotonicTime last_news) {
    if (!status.is_due(turn, last_news)) return false;
    status.write(folder.path(), std::nullopt, {});
    return true;
  }
  bool soon() { return turn(StatusTurn::kSoon, started); }
  bool when_due() { return turn(StatusTurn::kWhenDue, started); }
};

}  // namespace

TEST_CASE("what begins or ends is in status.json at once while writing it costs next to nothing") {
  Scene s;
  for (int i = 0; i < 5; ++i) CHECK(s.soon());
  CHECK_FALSE(s.when_due());
  s.clock.advance(seconds(5));
  CHECK(s.when_due());
}

TEST_CASE("a status that costs much is written for a twentieth of the time, and after a second") {
  Scene s;
  CHECK(s.soon());
  s.files.cost = milliseconds(10);
  CHECK(s.soon());  // the one before cost nothing
  CHECK_FALSE(s.soon());
  s.clock.advance(milliseconds(199));
  CHECK_FALSE(s.when_due());
  CHECK(s.status.is_behind(s.started));  // so that the loop wakes for it
  CHECK(s.status.due(s.started) == s.clock.monotonic_now() + milliseconds(1));
  s.clock.advance(milliseconds(1));
  CHECK(s.when_due());
  CHECK_FALSE(s.status.is_behind(s.started));
  CHECK_FALSE(s.when_due());

  s.files.cost = seconds(3);
  s.clock.advance(seconds(1));
  CHECK(s.soon());
  s.clock.advance(milliseconds(999));
  CHECK_FALSE(s.soon());
  s.clock.advance(milliseconds(1));
  CHECK(s.soon());
}

TEST_CASE(
    "the last status is written whatever it costs, and news are told after a second as ever") {
  Scene s;
  s.files.cost = milliseconds(40);
  CHECK(s.soon());
  CHECK(s.turn(StatusTurn::kAtOnce, s.started));
  CHECK(s.turn(StatusTurn::kAtOnce, s.started));
  s.clock.advance(milliseconds(100));
  const MonotonicTime news = s.clock.monotonic_now();
  CHECK_FALSE(s.turn(StatusTurn::kWhenDue, news));
  s.clock.advance(milliseconds(999));
  CHECK_FALSE(s.turn(StatusTurn::kWhenDue, news));
  s.clock.advance(milliseconds(1));
  CHECK(s.turn(StatusTurn::kWhenDue, news));
}
