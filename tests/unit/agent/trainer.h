// A trainer that saves checkpoints in memory, and one output directory of the agent over a real
// database, on a clock of our own.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "agent/run/output_directory.h"
#include "store/state/sqlite.h"
#include "tests/unit/agent/fake_notifier.h"
#include "tests/unit/state/scenario.h"
#include "tests/unit/support/memory_file_system.h"

namespace evalcar::testing {

using std::chrono::seconds;
using test::must;

/// A whole safetensors file of one tensor with one byte pattern.
inline std::string safetensors(char pattern) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  std::string text(1, static_cast<char>(header.size()));
  return text + std::string(7, '\0') + header + std::string(8, pattern);
}

struct Trainer {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  test::TemporaryDirectory folder;
  config::Settings settings;
  run::Surroundings around{files, clock, {}, "test", {}, {}, {}};
  std::unique_ptr<run::OutputDirectory> directory;

  Trainer() {
    files.put_directory("/out");
    files.put_directory(folder.path());
    around.make_notifier = [] { return std::make_unique<FakeNotifier>(); };
    settings.watch.pattern = "checkpoint-{step}";
    settings.watch.poll_interval = seconds(1);
    settings.watch.settle_time = seconds(30);
    settings.evaluate.tasks = {"docvqa_val"};
    settings.evaluate.weights = {"regular", "ema"};
    settings.evaluate.dtype = "auto";
    settings.limits.retry_delay = seconds(10);
    settings.limits.min_free = 0;
    settings.store.path = folder / "run.db";
    start();
  }
  void start() {
    directory.reset();
    directory = must(run::OutputDirectory::open(around, settings, "/out"));
  }
  void save(std::int64_t step, char pattern = 'a') {
    const std::string path = "/out/checkpoint-" + std::to_string(step) + "/";
    files.put_file(path + "config.json", R"({"model_type":"qwen2_5_vl","architectures":["X"]})");
    files.put_file(path + "tokenizer.json", "{}");
    files.put_file(path + "tokenizer_config.json", "{}");
    files.put_file(path + "preprocessor_config.json", "{}");
    files.put_file(path + "model.safetensors", safetensors(pattern));
    files.put_file(path + "trainer_state.json", "{}");
  }
  void remove(std::int64_t step) {
    must(remove_tree(files, "/out/checkpoint-" + std::to_string(step)));
  }
  /// From now on the database refuses this, as if the disk were full.
  void refuse(const std::string& what) {
    on_database("CREATE TRIGGER refuse BEFORE " + what +
                " BEGIN SELECT RAISE(ABORT, 'no room'); END");
  }
  void accept() { on_database("DROP TRIGGER refuse"); }
  void on_database(const std::string& sql) {
    const auto database = must(state::Connection::open(
        settings.store.path, state::Connection::Mode::kReadWriteCreate, 1000));
    must(database->execute(sql));
  }
  Status turn(seconds after = seconds(1)) {
    clock.advance(after);
    return directory->step();
  }
  /// It is measured and published. `failed`: why the last of several tasks has no number.
  void publish(const state::Evaluation& one, double value, const std::string& failed = "") {
    state::Store& store = directory->store();
    const std::string hash = "w" + std::to_string(one.step);
    must(store.begin_attempt(one.id, "cpu"));
    must(store.record_loaded(one.id, hash, "float32"));
    protocol::EvaluationResult result;
    result.weights_sha256 = hash;
    result.tasks = {test::anls_result(one.settings.tasks.front(), value)};
    if (!failed.empty()) {
      result.tasks.push_back({});
      result.tasks.back().task = one.settings.tasks.back();
      result.tasks.back().error = failed;
    }
    must(store.record_result(one.id, result));
    if (failed.empty()) directory->release(one);
    must(directory->publish(must(store.read().evaluation(one.id))));
  }
  /// What the weights of a lease are a pattern of; 0: there is no such lease.
  char held_pattern(const std::string& lease) const {
    const auto held =
        read_file(files, "/out/_evalcar/leases/" + lease + "/model.safetensors", 4096);
    return held.has_value() ? held->back() : '\0';
  }
  /// Turns, which may fail.
  void wait_until_held(const std::string& lease, char pattern) {
    for (int i = 0; i < 40 && held_pattern(lease) == 0; ++i) (void)turn();
    REQUIRE(held_pattern(lease) == pattern);
  }
  /// The agent starts without it.
  void lose_database() {
    directory.reset();
    for (const char* const suffix : {"", "-wal", "-shm"}) {
      std::filesystem::remove(settings.store.path + suffix);
    }
    start();
  }
  /// Retention, a restart, and the database that takes everything again.
  void lose_and_restart(std::int64_t step) {
    remove(step);
    start();
    accept();
    for (int i = 0; i < 6; ++i) must(turn(seconds(10)));
  }
  state::Evaluation row(std::int64_t step) const {
    const auto rows = must(directory->store().read().evaluations({.step = step}));
    REQUIRE(rows.size() == 1);
    return rows.front();
  }
  /// Of those of several tasks, the one of this task alone.
  state::Evaluation row(std::int64_t step, const std::string& task) const {
    const auto rows = must(directory->store().read().evaluations({.step = step}));
    for (const state::Evaluation& one : rows) {
      if (one.settings.tasks == std::vector{task}) return one;
    }
    FAIL("no row of " << task << " of step " << step);
    return {};
  }
};

}  // namespace evalcar::testing
