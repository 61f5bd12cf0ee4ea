#include "agent/http/known_checkpoint.h"

#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "tests/unit/state/scenario.h"

using namespace evalcar;
using http::knows_checkpoint;
using test::must;

TEST_CASE("what the newest run of a directory knows of a checkpoint is told, by its kind") {
  test::Scenario s;
  s.plan(100);
  must(s.store->mark_checkpoint_gone(must(s.store->read().checkpoints(s.run.id)).front().id));

  CHECK(must(knows_checkpoint(s.files, s.db(), "/out/run/checkpoint-100", "regular")));
  CHECK_FALSE(must(knows_checkpoint(s.files, s.db(), "/out/run/checkpoint-100", "ema")));
  CHECK_FALSE(must(knows_checkpoint(s.files, s.db(), "/out/run/checkpoint-200", "regular")));
  CHECK_FALSE(must(knows_checkpoint(s.files, s.db(), "/out/other/checkpoint-100", "regular")));
  CHECK_FALSE(
      must(knows_checkpoint(s.files, s.folder / "none.db", "/out/run/checkpoint-100", "regular")));

  // The directory was made anew: another run's numbers are not this one's.
  must(s.store->ensure_run("run-01234567-2", "/out/run", 2, 11));
  CHECK_FALSE(must(knows_checkpoint(s.files, s.db(), "/out/run/checkpoint-100", "regular")));
}

TEST_CASE("a database that cannot be read is not one that does not know") {
  test::Scenario s;
  std::ofstream(s.folder / "torn.db") << std::string(5'000, 'x');

  const auto known =
      knows_checkpoint(s.files, s.folder / "torn.db", "/out/run/checkpoint-100", "regular");

  REQUIRE_FALSE(known.has_value());
  CHECK(known.error().code == ErrorCode::kUnavailable);
}
