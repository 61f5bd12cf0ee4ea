// watch.exit_at_max_steps beside folders of an earlier training.
#include "agent/run/last_step.h"

#include <catch2/generators/catch_generators.hpp>

#include "store/state/location.h"
#include "tests/unit/agent/trainer.h"

using namespace evalcar;
using evalcar::test::must;
using evalcar::testing::safetensors;
using evalcar::testing::Trainer;
using std::chrono::minutes;
using std::chrono::seconds;

namespace {

struct Ending : Trainer {
  Ending() { settings.watch.exit_at_max_steps = true; }
  void save_of(std::int64_t step, std::int64_t max_steps, char pattern = 'a') {
    save(step, pattern);
    files.put_file("/out/checkpoint-" + std::to_string(step) + "/trainer_state.json",
                   R"({"global_step":)" + std::to_string(step) + R"(,"max_steps":)" +
                       std::to_string(max_steps) + "}");
  }
  /// As by a clock that is ahead of ours.
  void set_times(std::int64_t step, minutes ahead) {
    const std::string path = "/out/checkpoint-" + std::to_string(step);
    const auto then = clock.wall_now().time_since_epoch() + ahead;
    for (const DirectoryEntry& entry : must(files.list(path, 100))) {
      files.put_times(path + "/" + entry.name, std::chrono::nanoseconds(then).count());
    }
  }
  /// Whether it ended within so long, a turn a minute.
  bool ends_within(minutes time) {
    for (minutes passed{}; passed < time; passed += minutes(1)) {
      must(turn(seconds(60)));
      if (directory->training_over()) return true;
    }
    return false;
  }
};

}  // namespace

TEST_CASE("a checkpoint that says it is the last ends training when it comes") {
  Ending t;
  t.start();
  t.save_of(500, 1000);
  CHECK_FALSE(t.ends_within(minutes(40)));

  t.save_of(1000, 1000);

  CHECK(t.ends_within(minutes(3)));
}

TEST_CASE("a training that is resumed below an old last step does not end by it") {
  Ending t;
  t.save_of(500, 1000);
  t.clock.advance(seconds(300));
  t.save_of(1000, 1000);
  t.clock.advance(std::chrono::hours(3));
  t.start();
  CHECK_FALSE(t.ends_within(minutes(10)));

  t.save_of(600, 1000, 'b');
  CHECK_FALSE(t.ends_within(minutes(60)));

  t.save_of(1000, 1000, 'b');
  CHECK(t.ends_within(minutes(3)));
}

TEST_CASE("a shorter training beside the folders of a longer one ends with its own last step") {
  Ending t;
  t.save_of(900, 1000);
  t.clock.advance(std::chrono::hours(3));
  t.start();
  must(t.turn());

  t.save_of(500, 500, 'b');

  CHECK(t.ends_within(minutes(3)));
}

TEST_CASE("a checkpoint that is being written keeps an old last step from ending training") {
  Ending t;
  t.save_of(1000, 1000);
  t.clock.advance(seconds(60));
  t.start();
  CHECK_FALSE(t.ends_within(minutes(20)));

  t.files.put_file("/out/checkpoint-600/config.json", "{}");

  CHECK_FALSE(t.ends_within(minutes(60)));
  t.remove(600);
  CHECK_FALSE(t.ends_within(minutes(20)));
  CHECK(t.ends_within(minutes(20)));
}

TEST_CASE("an old last step counts once nothing was written for half an hour") {
  Ending t;
  t.save_of(1000, 1000);
  t.clock.advance(seconds(60));
  t.start();

  CHECK_FALSE(t.ends_within(minutes(29)));
  CHECK(t.ends_within(minutes(5)));
}

TEST_CASE("an old last step is told by what was there, not by a clock that may be another one") {
  Ending t;
  t.save_of(1000, 1000);
  t.set_times(1000, std::chrono::minutes(5));  // of the file server, which is ahead
  t.start();

  CHECK_FALSE(t.ends_within(minutes(20)));
  t.save_of(1200, 2000, 'b');
  CHECK_FALSE(t.ends_within(minutes(60)));
  t.save_of(2000, 2000, 'c');
  t.set_times(2000, std::chrono::minutes(-600));  // and one that is behind now
  t.remove(1200);
  t.remove(1000);
  CHECK(t.ends_within(minutes(3)));
}

TEST_CASE("what was there when the process first looked is that over a reload, and nothing else") {
  Ending t;
  run::FirstSeenOf first_seen;
  t.around.first_seen = &first_seen;
  t.save_of(1000, 1000);
  t.start();
  CHECK_FALSE(t.ends_within(minutes(10)));

  t.save_of(1000, 1000, 'b');
  t.start();

  CHECK(t.ends_within(minutes(3)));
}

TEST_CASE("a last step that was copied to resume from counts only once nothing was written") {
  const std::string written_behind = GENERATE("tokenizer.json", "training_args.bin");
  Ending t;
  t.start();
  must(t.turn());
  t.save_of(1000, 1000);
  t.clock.advance(seconds(1));
  t.files.put_file("/out/checkpoint-1000/" + written_behind, "{}");

  CHECK_FALSE(t.ends_within(minutes(25)));
  CHECK(t.ends_within(minutes(10)));
}

TEST_CASE("an old last step of a run that saves seldom counts later") {
  Ending t;
  t.save_of(500, 1000);
  t.clock.advance(std::chrono::hours(2));
  t.save_of(1000, 1000);
  t.clock.advance(seconds(60));
  t.start();

  CHECK_FALSE(t.ends_within(minutes(3 * 60 + 50)));
  CHECK(t.ends_within(minutes(20)));
}

TEST_CASE("weights between two checkpoints tell that training goes on beside an old last step") {
  Ending t;
  t.settings.watch.snapshot_dir = "/shm";
  t.save_of(1000, 1000);
  t.clock.advance(seconds(60));
  t.start();
  CHECK_FALSE(t.ends_within(minutes(20)));

  const std::string place = "/shm/" + state::database_stem("/out") + "/weights-of-step-600";
  t.files.put_file(place + "/config.json", R"({"model_type":"qwen2_5_vl","architectures":["X"]})");
  t.files.put_file(place + "/model.safetensors", safetensors('b'));

  CHECK_FALSE(t.ends_within(minutes(60)));
}
