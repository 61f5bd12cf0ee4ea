// One output directory, turn by turn: a real database, checkpoints in memory, a clock of our own.
#include "agent/run/output_directory.h"

#include "store/state/sqlite.h"
#include "tests/unit/agent/fake_notifier.h"
#include "tests/unit/state/scenario.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::run;
using evalcar::test::must;
using std::chrono::seconds;

namespace {

/// A whole safetensors file of one tensor with one byte pattern.
std::string safetensors(char pattern) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  std::string text(1, static_cast<char>(header.size()));
  return text + std::string(7, '\0') + header + std::string(8, pattern);
}

struct Trainer {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  test::TemporaryDirectory folder;
  config::Settings settings;
  Surroundings around{files, clock, {}, "test", {}, {}, {}};
  std::unique_ptr<OutputDirectory> directory;

  Trainer() {
    files.put_directory("/out");
    files.put_directory(folder.path());
    around.make_notifier = [] { return std::make_unique<testing::FakeNotifier>(); };
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
    directory = must(OutputDirectory::open(around, settings, "/out"));
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
  void refuse_checkpoints(bool refuse) {
    const auto database = must(state::Connection::open(
        settings.store.path, state::Connection::Mode::kReadWriteCreate, 1000));
    must(database->execute(refuse ? "CREATE TRIGGER refuse BEFORE INSERT ON checkpoint BEGIN "
                                    "SELECT RAISE(ABORT, 'no room'); END"
                                  : "DROP TRIGGER refuse"));
  }
  Status turn(seconds after = seconds(1)) {
    clock.advance(after);
    return directory->step();
  }
  state::Evaluation row(std::int64_t step) const {
    const auto rows = must(directory->store().read().evaluations({.step = step}));
    REQUIRE(rows.size() == 1);
    return rows.front();
  }
};

}  // namespace

TEST_CASE("a checkpoint is recorded and leased in one turn, and the lease outlives it") {
  Trainer t;
  t.save(5);

  must(t.turn());
  t.remove(5);
  must(t.turn());

  const state::Evaluation row = t.row(5);
  CHECK(row.state == state::EvaluationState::kLeased);
  CHECK(must(t.directory->lease_of(row)).has_value());
}

TEST_CASE(
    "a checkpoint that came and went while nothing could be recorded is lost, not forgotten") {
  Trainer t;
  t.save(5);
  must(t.turn());
  t.save(10);

  t.refuse_checkpoints(true);  // as a full disk
  CHECK_FALSE(t.turn().has_value());
  t.remove(10);
  must(t.turn());
  t.refuse_checkpoints(false);
  for (int i = 0; i < 6; ++i) must(t.turn());

  CHECK(t.row(10).state == state::EvaluationState::kLost);
  CHECK(t.row(10).reason.find("removed before it could be leased") != std::string::npos);
}

TEST_CASE("a lease of an earlier process that lacks a file is taken again from the checkpoint") {
  Trainer t;
  t.save(5);
  must(t.turn());
  must(t.files.remove_file("/out/_evalcar/leases/5-1-regular/tokenizer.json"));
  t.start();
  must(t.turn());

  const auto lease = must(t.directory->lease_of(t.row(5)));

  REQUIRE(lease.has_value());
  CHECK(t.files.exists("/out/_evalcar/leases/5-1-regular/tokenizer.json"));
}

TEST_CASE("a lease that lacks a file, of a checkpoint that is gone, is lost and never measured") {
  Trainer t;
  t.save(5);
  must(t.turn());
  t.remove(5);
  must(t.files.remove_file("/out/_evalcar/leases/5-1-regular/tokenizer.json"));
  t.start();
  must(t.turn());

  CHECK_FALSE(must(t.directory->lease_of(t.row(5))).has_value());

  CHECK(t.row(5).state == state::EvaluationState::kLost);
}

TEST_CASE("a lease whose weights were rewritten in place while no agent ran is not measured") {
  Trainer t;
  t.save(5);
  must(t.turn());
  t.directory.reset();
  t.clock.advance(seconds(5));
  t.files.put_file("/out/checkpoint-5/model.safetensors", safetensors('b'));  // the same inode
  t.remove(5);
  t.start();
  must(t.turn());

  CHECK_FALSE(must(t.directory->lease_of(t.row(5))).has_value());

  CHECK(t.row(5).state == state::EvaluationState::kLost);
}

TEST_CASE("a copied lease of an earlier process is used, though its files have other inodes") {
  Trainer t;
  t.save(5);
  t.files.put_directory("/out/_evalcar");
  t.files.mount("/out/_evalcar", 99, 0xef53);  // no links across file systems
  t.files.set_free_bytes(1U << 30U);
  must(t.turn());
  t.remove(5);
  t.start();
  must(t.turn());

  CHECK(must(t.directory->lease_of(t.row(5))).has_value());
}
