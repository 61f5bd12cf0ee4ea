// publish.keep_best where the disk is short: what is kept then, and what takes its place.
#include "agent/run/best_kept.h"

#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <vector>

#include "tests/unit/agent/trainer.h"

using namespace evalcar;
using evalcar::test::must;
using evalcar::testing::Trainer;
using std::chrono::seconds;

namespace {

using Names = std::vector<std::string>;

/// Steps 5, 10, 15 and 20, the first the best; two are kept.
struct Ranked : Trainer {
  Ranked() {
    settings.publish.keep_best = 2;
    settings.publish.metric_for_best_model = "eval/docvqa_val/anls";
    start();
  }
  void measure_all() {
    double value = 0.9;
    for (const std::int64_t step : {5, 10, 15, 20}) {
      save(step, static_cast<char>('a' + step));
      must(turn());
      publish(step, value);
      value -= 0.1;
    }
    must(turn());
  }
  using Trainer::publish;
  void publish(std::int64_t step, double value) { publish(row(step), value); }
  /// In no turn anything else than these are kept.
  void expect(const Names& kept, int turns) {
    for (int i = 0; i < turns; ++i) {
      must(turn());
      CHECK(directory->stage().names() == kept);
    }
  }
  /// How many files of a lease were made since the calls were reset.
  std::size_t written_to(const std::string& lease) const {
    std::size_t made = 0;
    for (const test::Call& call : files.calls()) {
      const bool here = call.path.find("/leases/" + lease + "/") != std::string::npos;
      made += call.operation == "create" && here ? 1 : 0;
    }
    return made;
  }
  std::string kept_path(std::int64_t step) const {
    return must(directory->store().read().kept_path(row(step).checkpoint_id, "regular"));
  }
  /// What the files of one checkpoint take.
  std::uint64_t checkpoint_bytes() const {
    std::uint64_t bytes = 0;
    const std::string lease = "/out/_evalcar/leases/5-1-regular";
    for (const DirectoryEntry& entry : must(files.list(lease, 100))) {
      bytes += must(files.info(join_path(lease, entry.name))).size_bytes;
    }
    return bytes;
  }
};

}  // namespace

TEST_CASE("the place of one of the best that was given up goes to the next that is still there") {
  Ranked t;
  t.measure_all();
  CHECK(t.directory->stage().names() == Names{"10-1-regular", "5-1-regular"});

  t.settings.limits.lease_budget = t.checkpoint_bytes();
  t.remove(5);
  t.remove(10);
  for (int i = 0; i < 3; ++i) must(t.turn(seconds(10)));

  const Names kept = {"15-1-regular", "5-1-regular"};
  t.expect(kept, 12);
  CHECK(t.kept_path(10).empty());
  CHECK(t.kept_path(15) == "/out/_evalcar/leases/15-1-regular");
  t.start();
  t.expect(kept, 12);
  // What the trainer deletes next costs again, and the one behind it takes its place.
  t.remove(15);
  for (int i = 0; i < 3; ++i) must(t.turn(seconds(10)));
  t.expect({"20-1-regular", "5-1-regular"}, 12);
}

TEST_CASE("what was given up is not copied again while there is no room for it") {
  Ranked t;
  t.files.put_directory("/out/_evalcar");
  t.files.mount("/out/_evalcar", 99, 0xef53);  // no links across file systems
  t.files.set_free_bytes(1U << 30U);
  const bool clones = GENERATE(false, true);
  if (clones) t.files.allow_clones();
  t.measure_all();
  CHECK(t.directory->stage().names() == Names{"10-1-regular", "5-1-regular"});

  t.settings.limits.lease_budget = t.checkpoint_bytes() * 3 / 2;
  for (int i = 0; i < 3; ++i) must(t.turn(seconds(10)));

  INFO("clones " << clones);
  t.files.reset_calls();
  t.expect({"5-1-regular"}, 12);
  CHECK(t.written_to("10-1-regular") == 0);
  t.start();
  t.expect({"5-1-regular"}, 12);
  if (!clones) CHECK(t.written_to("10-1-regular") == 0);  // a clone costs nothing: it is tried
}

TEST_CASE("what a better one overtakes is kept no longer, and its lease goes") {
  Ranked t;
  double value = 0.1;
  for (const std::int64_t step : {5, 10, 15}) {
    t.save(step, static_cast<char>('a' + step));
    must(t.turn());
    t.publish(step, value);
    value += 0.1;
  }
  t.expect({"10-1-regular", "15-1-regular"}, 2);
  CHECK(t.kept_path(5).empty());
}

TEST_CASE("the lease of one that is overtaken stays while an average to come needs it") {
  Ranked t;
  t.settings.publish.keep_best = 1;
  t.settings.evaluate.average_last = 3;
  t.start();
  double value = 0.1;
  for (const std::int64_t step : {5, 10}) {
    t.save(step, static_cast<char>('a' + step));
    must(t.turn());
    t.publish(step, value);
    value += 0.1;
  }
  t.expect({"10-1-regular", "5-1-regular"}, 3);
}

TEST_CASE("the lease of one that is not among the best stays while other tasks wait for it") {
  Ranked t;
  t.settings.publish.keep_best = 1;
  t.settings.evaluate.tasks = {"docvqa_val", "mmmu_val"};
  t.settings.evaluate.task_every_nth = {{"mmmu_val", 2}};
  t.start();
  double value = 0.9;
  for (const std::int64_t step : {5, 10, 15}) {
    t.save(step, static_cast<char>('a' + step));
    must(t.turn());
    t.publish(t.row(step, "docvqa_val"), value);
    value -= 0.1;
  }
  // 10 and 15 are not the best; 15, as every second, is to be measured by mmmu_val yet.
  t.expect({"15-1-regular", "5-1-regular"}, 3);

  t.publish(t.row(15, "mmmu_val"), 0.5);
  t.expect({"5-1-regular"}, 3);
}

TEST_CASE("a lease that the store kept from being given back goes with the next ranking") {
  Ranked t;
  t.save(5, 'a');
  t.save(10, 'b');
  must(t.turn());
  const state::Evaluation ended = t.row(5);
  must(t.directory->store().transition(ended.id, state::EvaluationState::kSkipped, "for now"));
  t.refuse("UPDATE OF lease_path ON evaluation");
  t.directory->release(ended);
  t.accept();
  CHECK(t.directory->stage().names() == Names{"10-1-regular", "5-1-regular"});

  t.publish(10, 0.5);

  t.expect({"10-1-regular"}, 2);
}
