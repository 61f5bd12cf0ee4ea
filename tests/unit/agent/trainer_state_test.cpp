#include "agent/run/trainer_state.h"

#include <catch2/catch_test_macros.hpp>

#include "agent/run/training_end.h"
#include "tests/unit/state/scenario.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::run;
using std::chrono::seconds;

namespace {

struct Place {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  config::WatchSettings settings;

  Place() {
    files.put_directory("/out");
    files.put_directory("/proc");
    files.put_directory("/proc/2000000077");
  }
  Result<TrainerState> state(const std::string& text) {
    files.put_file("/out/checkpoint-5/trainer_state.json", text);
    return read_trainer_state(files, "/out/checkpoint-5");
  }
  void process(const std::string& state, const std::string& start) {
    std::string fields;
    for (int field = 4; field < 22; ++field) fields += "0 ";
    files.put_file("/proc/2000000077/stat",
                   "2000000077 (a) name) " + state + " " + fields + start + " 0\n");
  }
  TrainingEnd end() const { return {files, clock, settings, "/out"}; }
};

}  // namespace

TEST_CASE("of trainer_state.json the numbers at the top count, whatever its log holds") {
  Place p;
  const auto state = p.state(
      R"({"epoch": 1.98, "global_step": 99, "log_history": [{"epoch": 7, "loss": NaN, "max_steps": 3}],
          "max_steps": 100, "save_steps": 33, "trial_params": null})");
  REQUIRE(state.has_value());
  CHECK(state->global_step == 99);
  CHECK(state->max_steps == 100);
  CHECK(state->save_steps == 33);
  CHECK(state->epoch == 1.98);
  CHECK_FALSE(state->is_last());
}

TEST_CASE("the log of a run of a million steps keeps nothing from being read") {
  Place p;
  std::string text = R"({"epoch": 1.5, "log_history": [)";
  const std::string entry = R"({"epoch": 0.5, "grad_norm": NaN, "max_steps": 3, "step": 100},)";
  while (text.size() < (std::size_t{130} << 20U)) text += entry;
  text += R"({}], "global_step": 100, "max_steps": 100})";

  const auto state = p.state(text);

  REQUIRE(state.has_value());
  CHECK(state->epoch == 1.5);
  CHECK(state->is_last());
  // A piece at a time: the file is never in memory as a whole.
  CHECK(p.files.count("read_at") > 100);
}

TEST_CASE("a trainer state that is none, or says nothing sensible, is not known") {
  Place p;
  CHECK_FALSE(read_trainer_state(p.files, "/out/checkpoint-9").has_value());
  CHECK_FALSE(p.state(R"({"global_step": 5)").has_value());
  CHECK_FALSE(p.state("").has_value());
  const auto odd =
      p.state(R"({"global_step": -5, "max_steps": 1e300, "epoch": "1", "save_steps": []})");
  REQUIRE(odd.has_value());
  CHECK(odd->global_step == 0);
  CHECK(odd->max_steps == 0);
  CHECK_FALSE(odd->epoch.has_value());
  CHECK_FALSE(odd->is_last());
  CHECK(p.state(R"({"global_step": 100, "max_steps": 100})")->is_last());
}

TEST_CASE("lmms-engine's configuration tells how often it saves") {
  Place p;
  CHECK(save_steps_of_lmms_engine(p.files, "/out") == 0);
  p.files.put_file("/out/config.yaml",
                   "a: 1\ntrainer_args:\n  eval_steps: 10\n  save_steps: 500\n");
  CHECK(save_steps_of_lmms_engine(p.files, "/out") == 500);
  p.files.put_file("/out/config.yaml", "trainer_args:\n  save_steps: 0.1\n  xsave_steps: 4\n");
  CHECK(save_steps_of_lmms_engine(p.files, "/out") == 0);
}

TEST_CASE("a marker file ends training, from then on") {
  Place p;
  p.settings.exit_marker = "DONE";
  TrainingEnd end = p.end();
  end.step(true);  // the last step is no reason unless it is asked for
  CHECK_FALSE(end.since().has_value());
  CHECK(end.watches());

  p.files.put_file("/out/DONE", "");
  p.clock.advance(seconds(2));
  end.step(false);
  REQUIRE(end.since().has_value());
  CHECK(*end.since() == p.clock.monotonic_now());
  CHECK_FALSE(end.watches());
  test::must(p.files.remove_file("/out/DONE"));
  p.clock.advance(seconds(2));
  end.step(false);
  CHECK(end.since().has_value());
}

TEST_CASE(
    "the trainer's process has ended when it is gone, a zombie, or another one of its number") {
  for (const char* how : {"gone", "zombie", "another"}) {
    INFO(how);
    Place p;
    p.settings.exit_with_pid = 2000000077;
    p.process("S", "1234");
    TrainingEnd end = p.end();
    end.step(false);
    CHECK_FALSE(end.since().has_value());

    if (std::string(how) == "gone") test::must(p.files.remove_file("/proc/2000000077/stat"));
    if (std::string(how) == "zombie") p.process("Z", "1234");
    if (std::string(how) == "another") p.process("S", "5678");
    p.clock.advance(seconds(2));
    end.step(false);
    CHECK(end.since().has_value());
  }
}

TEST_CASE("nothing that is configured means that training goes on") {
  Place p;
  TrainingEnd end = p.end();
  end.step(true);
  CHECK_FALSE(end.since().has_value());
  CHECK_FALSE(end.watches());
}

TEST_CASE("the last step ends training where that is asked for") {
  Place p;
  p.settings.exit_at_max_steps = true;
  TrainingEnd end = p.end();
  end.step(false);
  CHECK_FALSE(end.since().has_value());
  end.step(true);
  CHECK(end.since().has_value());
}
