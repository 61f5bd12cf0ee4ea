// One evaluation, with an evaluator that says what the test tells it to.
#include "agent/run/job.h"

#include "tests/unit/agent/fake_evaluator.h"
#include "tests/unit/agent/trainer.h"

using namespace evalcar;
using evalcar::test::must;
using evalcar::testing::FakeEvaluator;
using evalcar::testing::FakeEvaluatorScript;
using evalcar::testing::Trainer;
using std::chrono::seconds;

namespace {

const std::string kHash(64, 'a');

/// Checkpoint 5 is leased, and its job waits for the evaluator to load it.
struct Loading {
  Trainer trainer;
  FakeEvaluatorScript script;
  supervise::Supervisor supervisor{std::make_unique<FakeEvaluator>(script), trainer.clock, {}};
  std::unique_ptr<run::Job> job;

  Loading() {
    trainer.save(5);
    must(trainer.turn());
    auto lease = must(trainer.directory->lease_of(trainer.row(5)));
    job = must(run::Job::begin(trainer.around, *trainer.directory, supervisor, trainer.settings,
                               trainer.row(5), std::move(*lease)));
    say(protocol::Hello{});
  }
  void say(const protocol::Message& message) {
    script.pending.emplace_back(message);
    for (auto& event : supervisor.step()) job->take(std::move(event));
  }
  void say_loaded() {
    protocol::Loaded loaded;
    loaded.id = script.received_of<protocol::Load>().back().id;
    loaded.weights_sha256 = kHash;
    loaded.dtype = "float32";
    say(loaded);
  }
};

}  // namespace

TEST_CASE("weights that cannot be recorded for a moment stay loaded, and it is no failure") {
  Loading l;
  l.trainer.refuse("UPDATE ON evaluation WHEN NEW.state = 'evaluating'");

  l.say_loaded();
  CHECK_FALSE(l.job->step().has_value());
  l.trainer.clock.advance(seconds(5));
  CHECK_FALSE(l.job->step().has_value());
  CHECK(l.script.received_of<protocol::Evaluate>().empty());
  l.trainer.accept();
  must(l.job->step());

  CHECK(l.script.received_of<protocol::Evaluate>().size() == 1);
  CHECK(l.script.received_of<protocol::Cancel>().empty());
  const state::Evaluation row = l.trainer.row(5);
  CHECK(row.state == state::EvaluationState::kEvaluating);
  CHECK(row.weights_sha256 == kHash);
  CHECK(row.failures == 0);
}

TEST_CASE("an evaluator that dies while its weights wait to be recorded is a failure") {
  Loading l;
  l.trainer.refuse("UPDATE ON evaluation WHEN NEW.state = 'evaluating'");
  l.say_loaded();
  CHECK_FALSE(l.job->step().has_value());

  l.script.pending.emplace_back(supervise::Exited{"signal 9 (Killed)", {}});
  for (auto& event : l.supervisor.step()) l.job->take(std::move(event));
  must(l.job->step());

  CHECK(l.job->done());
  CHECK(l.trainer.row(5).state == state::EvaluationState::kFailed);
}
