// What was held while nothing could be recorded, and is found by its lease's name at the next
// start.
#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <vector>

#include "agent/run/output_directory.h"
#include "tests/unit/agent/trainer.h"
#include "tests/unit/checkpoint/torch_files.h"

using namespace evalcar;
using evalcar::test::must;
using evalcar::testing::safetensors;
using evalcar::testing::Trainer;
using std::chrono::seconds;

TEST_CASE("what was held is measured after a restart, though its row was there in part") {
  Trainer t;
  t.save(5);
  must(t.turn());
  t.save(10);
  must(t.files.remove_file("/out/checkpoint-10/trainer_state.json"));
  must(t.turn());
  REQUIRE(t.row(10).state == state::EvaluationState::kFound);
  t.refuse("UPDATE ON checkpoint_kind");
  t.files.put_file("/out/checkpoint-10/trainer_state.json", "{}");
  t.wait_until_held("10-1-regular", 'a');

  t.lose_and_restart(10);

  CHECK(t.row(10).state == state::EvaluationState::kLeased);
  CHECK(must(t.directory->lease_of(t.row(10))).has_value());
}

TEST_CASE("what was held of a rewritten checkpoint is measured after a restart, as its next one") {
  Trainer t;
  t.save(10);
  must(t.turn());
  t.publish(t.row(10), 0.5);
  t.refuse("INSERT ON checkpoint");
  t.save(10, 'b');
  t.wait_until_held("10-2-regular", 'b');

  t.lose_and_restart(10);

  const auto rows = must(t.directory->store().read().evaluations({.step = 10}));
  REQUIRE(rows.size() == 2);
  CHECK(rows.back().generation == 2);
  CHECK(rows.back().state == state::EvaluationState::kLeased);
}

TEST_CASE("a new folder of a checkpoint that was there in part is measured after a restart") {
  const bool with_a_stale_one = GENERATE(false, true);
  Trainer t;
  t.save(5);
  must(t.turn());
  t.save(10);
  must(t.files.remove_file("/out/checkpoint-10/trainer_state.json"));
  must(t.turn());
  REQUIRE(t.row(10).state == state::EvaluationState::kFound);
  t.refuse("INSERT ON checkpoint");
  t.remove(10);
  t.save(10, 'b');
  t.wait_until_held("10-2-regular", 'b');
  t.remove(10);
  if (with_a_stale_one) {
    for (const char* const file : {"config.json", "tokenizer.json", "trainer_state.json"}) {
      t.files.put_file(std::string("/out/_evalcar/leases/10-1-regular/") + file, "{}");
    }
    t.files.put_file("/out/_evalcar/leases/10-1-regular/model.safetensors", safetensors('a'));
  }
  t.start();
  t.accept();

  for (int i = 0; i < 6; ++i) must(t.turn(seconds(10)));

  const auto rows = must(t.directory->store().read().evaluations({.step = 10}));
  REQUIRE(rows.size() == 2);
  CHECK(rows.back().generation == 2);
  CHECK(rows.back().state == state::EvaluationState::kLeased);
  CHECK(base_name(rows.back().lease_path) == "10-2-regular");
}

namespace {

/// A trainer as lmms-engine's, with EMA.
struct EmaTrainer : Trainer {
  void put_shard(const std::string& shards, const std::string& content) {
    const auto shard =
        checkpoint::testing::make_zip({{.name = "archive/data.pkl", .data = content}});
    files.put_file("/out/checkpoint-10/" + shards + "/model_world_size_1_rank_0.pt", shard);
  }
  void save_both() {
    put_shard("pytorch_model_fsdp_0", "x");
    put_shard("pytorch_ema_model_fsdp_0", "x");
    for (const char* const name :
         {"tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"})
      files.put_file(std::string("/out/checkpoint-10/") + name, "{}");
    files.put_file("/out/checkpoint-10/config.json",
                   R"({"model_type":"qwen2_5_vl","architectures":["X"]})");
    for (int i = 0; i < 40; ++i) must(turn());
    for (const char* const kind : {"regular", "ema"})
      REQUIRE(rows(kind).front().state == state::EvaluationState::kLeased);
  }
  std::vector<state::Evaluation> rows(const std::string& kind) const {
    return must(directory->store().read().evaluations({.step = 10, .kind = kind}));
  }
};

}  // namespace

TEST_CASE("weights that wait are measured, though other ones of their checkpoint were rewritten") {
  EmaTrainer t;
  t.save_both();
  t.publish(t.rows("ema").front(), 0.5);
  t.refuse("INSERT ON checkpoint");
  t.put_shard("pytorch_ema_model_fsdp_0", "rewritten");
  for (int i = 0; i < 40; ++i) (void)t.turn();
  REQUIRE(t.files.exists("/out/_evalcar/leases/10-2-ema"));
  REQUIRE_FALSE(t.files.exists("/out/_evalcar/leases/10-2-regular"));

  t.lose_and_restart(10);

  REQUIRE(t.rows("regular").size() == 1);
  CHECK(t.rows("regular").front().state == state::EvaluationState::kLeased);
}

TEST_CASE("regular weights and EMA that were rewritten and held together are both measured") {
  EmaTrainer t;
  t.save_both();
  t.refuse("INSERT ON checkpoint");
  t.put_shard("pytorch_model_fsdp_0", "rewritten");
  t.put_shard("pytorch_ema_model_fsdp_0", "rewritten");
  for (int i = 0; i < 60; ++i) (void)t.turn();
  REQUIRE(t.files.exists("/out/_evalcar/leases/10-2-ema"));
  REQUIRE(t.files.exists("/out/_evalcar/leases/10-2-regular"));

  t.lose_and_restart(10);

  for (const char* const kind : {"regular", "ema"}) {
    INFO(kind);
    REQUIRE(t.rows(kind).size() == 2);
    CHECK(t.rows(kind).front().state == state::EvaluationState::kSuperseded);
    CHECK(t.rows(kind).back().generation == 2);
    CHECK(t.rows(kind).back().state == state::EvaluationState::kLeased);
  }
}

TEST_CASE("EMA that nobody wants any more keeps no rewritten weights from being measured") {
  EmaTrainer t;
  t.save_both();
  t.refuse("INSERT ON checkpoint");
  t.put_shard("pytorch_model_fsdp_0", "rewritten");
  for (int i = 0; i < 40; ++i) (void)t.turn();
  REQUIRE(t.files.exists("/out/_evalcar/leases/10-2-regular"));
  t.settings.evaluate.weights = {"regular"};

  t.lose_and_restart(10);

  CHECK(t.rows("regular").back().generation == 2);
  CHECK(t.rows("regular").back().state == state::EvaluationState::kLeased);
}

TEST_CASE("an average that waits keeps no rewritten weights from being measured") {
  Trainer t;
  t.settings.evaluate.weights = {"regular"};
  t.settings.evaluate.average_last = 2;
  t.start();
  for (const std::int64_t step : {5, 10}) {
    t.save(step);
    for (int i = 0; i < 3; ++i) must(t.turn());
  }
  t.refuse("INSERT ON checkpoint");
  t.save(10, 'b');
  t.wait_until_held("10-2-regular", 'b');

  t.lose_and_restart(10);

  for (const char* const kind : {"regular", "average"}) {
    INFO(kind);
    const auto rows = must(t.directory->store().read().evaluations({.step = 10, .kind = kind}));
    CHECK(rows.front().state == state::EvaluationState::kSuperseded);
    CHECK(rows.back().generation == 2);
    CHECK(rows.back().state == state::EvaluationState::kLeased);
  }
}
