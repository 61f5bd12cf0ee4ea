// One output directory, turn by turn.
#include "agent/run/output_directory.h"

#include "tests/unit/agent/trainer.h"

using namespace evalcar;
using evalcar::test::must;
using evalcar::testing::safetensors;
using evalcar::testing::Trainer;
using std::chrono::seconds;

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

  t.refuse("INSERT ON checkpoint");
  CHECK_FALSE(t.turn().has_value());
  t.remove(10);
  must(t.turn());
  t.accept();
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
