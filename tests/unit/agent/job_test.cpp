// One evaluation, with an evaluator that says what the test tells it to.
#include "agent/run/job.h"

#include <algorithm>
#include <cerrno>
#include <thread>

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

  explicit Loading(bool drafts = true) {
    trainer.settings.evaluate.drafts = drafts;
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

TEST_CASE("an evaluation names its run and kind of weights, and none where no drafts are wanted") {
  for (const bool drafts : {true, false}) {
    Loading l(drafts);

    l.say_loaded();
    must(l.job->step());

    const auto evaluate = l.script.received_of<protocol::Evaluate>().back();
    const state::Evaluation row = l.trainer.row(5);
    CHECK(evaluate.series == (drafts ? row.run + " " + row.kind : ""));
  }
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

TEST_CASE(
    "a process that was killed for its memory gets smaller batches, and one at the last try") {
  Loading l;
  const auto batch = [&] {
    return l.script.received_of<protocol::Load>().back().settings->batch_size;
  };
  const auto die = [&] {
    l.script.pending.emplace_back(supervise::Exited{"signal 9 (Killed)", {}, 9});
    for (auto& event : l.supervisor.step()) l.job->take(std::move(event));
    must(l.job->step());
    REQUIRE(l.job->done());
  };
  const auto try_again = [&] {
    l.trainer.clock.advance(std::chrono::hours(1));
    auto lease = must(l.trainer.directory->lease_of(l.trainer.row(5)));
    l.job = must(run::Job::begin(l.trainer.around, *l.trainer.directory, l.supervisor,
                                 l.trainer.settings, l.trainer.row(5), std::move(*lease)));
    l.say(protocol::Hello{});
  };
  l.trainer.settings.limits.attempts = 4;
  CHECK(batch() == 0);
  die();
  try_again();
  CHECK(batch() == 8);
  die();
  try_again();
  CHECK(batch() == 2);
  die();
  try_again();
  CHECK(batch() == 1);
  die();
  const state::Evaluation row = l.trainer.row(5);
  CHECK(row.state == state::EvaluationState::kQuarantined);
  CHECK(row.reason.find("signal 9 (Killed)") != std::string::npos);
}

TEST_CASE("what a device computed before it failed is measured anew") {
  Loading l;
  l.say_loaded();
  must(l.job->step());
  const std::string id = l.script.received_of<protocol::Load>().back().id;
  l.say(protocol::Prepared{id, {{"docvqa_val", kHash}}});
  l.say(protocol::Sample{id, "docvqa_val", 1, "text", 1, kHash});
  l.trainer.clock.advance(seconds(5));
  must(l.job->step());
  const auto answers = [&] {
    return must(l.trainer.directory->store().read().answers(l.trainer.row(5).id)).size();
  };
  REQUIRE(answers() == 1);

  l.say(protocol::Sample{id, "docvqa_val", 2, "text", 1, kHash});
  l.say(protocol::JobError{.id = id,
                           .kind = std::string(protocol::kDeviceFault),
                           .stage = "evaluating",
                           .message = "700"});
  must(l.job->step());

  CHECK(answers() == 0);
  CHECK(l.trainer.row(5).state == state::EvaluationState::kFailed);
  CHECK(l.script.kills == 1);
}

namespace {

/// Checkpoint 5 is being evaluated.
struct Evaluating : Loading {
  std::string id;
  Evaluating() {
    say_loaded();
    must(job->step());
    id = script.received_of<protocol::Load>().back().id;
    say(protocol::Prepared{id, {{"docvqa_val", kHash}}});
  }
  void say_interim(std::int64_t n = 20) {
    say(protocol::Sample{id, "docvqa_val", 1, "text", 1, kHash});
    protocol::Interim interim{.id = id, .weights_sha256 = kHash, .fraction = 0.1};
    interim.tasks.resize(1);
    interim.tasks[0].task = "docvqa_val";
    interim.tasks[0].fingerprint = kHash;
    interim.tasks[0].n = n;
    interim.tasks[0].documents = 200;
    interim.tasks[0].metrics = {{"anls", "none", 0.5, 0.25, "", "", true}};
    say(interim);
  }
  std::size_t lines() const {
    const auto text = trainer.files.content("/out/_evalcar/metrics.jsonl");
    return text.has_value() ? static_cast<std::size_t>(std::ranges::count(*text, '\n')) : 0;
  }
};

}  // namespace

TEST_CASE("an interim score is told after the answers that it is of, and the job goes on") {
  Evaluating e;
  CHECK_FALSE(e.job->may_yield());
  e.say_interim();
  must(e.job->step());

  CHECK(e.lines() == 1);
  CHECK(must(e.trainer.directory->store().read().answers(e.trainer.row(5).id)).size() == 1);
  CHECK(e.trainer.row(5).state == state::EvaluationState::kEvaluating);
  CHECK(e.job->may_yield());
}

TEST_CASE("nothing is told of files that are not those of the lease any more") {
  Evaluating e;
  e.trainer.clock.advance(seconds(5));
  e.trainer.files.put_file("/out/_evalcar/leases/5-1-regular/model.safetensors", "other");
  e.say_interim();
  must(e.job->step());

  CHECK(e.lines() == 0);
  CHECK_FALSE(e.job->may_yield());
}

namespace {

/// The trainer's delete changes the ctime of the leased weights; hashing them again gives `hash`.
void tell_after_delete(Evaluating& e, const std::string& hash) {
  e.trainer.around.self_command = {"/bin/sh", "-c",
                                   "sleep 0.1; echo '{\"weights_sha256\": \"" + hash + "\"}'"};
  e.trainer.clock.advance(seconds(5));
  e.trainer.remove(5);
  e.say_interim();
  must(e.job->step());
  REQUIRE(e.job->hashing());
  for (int i = 0; i < 2000 && e.job->hashing(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    must(e.job->step());
  }
  REQUIRE_FALSE(e.job->hashing());
}

}  // namespace

TEST_CASE("after the trainer's delete an interim score is told if the weights hash to the same") {
  Evaluating e;
  tell_after_delete(e, kHash);
  CHECK(e.lines() == 1);
  CHECK(e.job->may_yield());
}

TEST_CASE("an interim score of weights that hash to something else by now is not told") {
  Evaluating e;
  tell_after_delete(e, std::string(64, 'b'));
  CHECK(e.lines() == 0);
  CHECK_FALSE(e.job->may_yield());
  CHECK_FALSE(e.job->done());
}

TEST_CASE("a disk that is full for a moment delays the line of an interim score, not the answers") {
  Evaluating e;
  e.trainer.files.fail_operation("append", ENOSPC);
  e.say_interim();
  CHECK_FALSE(e.job->step().has_value());
  CHECK(must(e.trainer.directory->store().read().answers(e.trainer.row(5).id)).size() == 1);
  must(e.job->step());
  CHECK(e.lines() == 1);
}

TEST_CASE("a job that makes way goes back to the queue with all its answers") {
  Evaluating e;
  e.say_interim();
  must(e.job->step());
  e.say(protocol::Sample{e.id, "docvqa_val", 2, "text", 1, kHash});

  must(e.job->yield("a newer checkpoint goes first"));

  CHECK(e.job->done());
  CHECK(e.script.received_of<protocol::Cancel>().size() == 1);
  const state::Evaluation row = e.trainer.row(5);
  CHECK(row.state == state::EvaluationState::kLeased);
  CHECK(row.reason == "a newer checkpoint goes first");
  CHECK(row.failures == 0);
  CHECK(must(e.trainer.directory->store().read().answers(row.id)).size() == 2);
}

TEST_CASE("what a device that failed had told is no reason to give way, and is told anew") {
  Evaluating e;
  e.say_interim();
  must(e.job->step());
  REQUIRE(e.job->may_yield());
  e.say(protocol::JobError{.id = e.id,
                           .kind = std::string(protocol::kDeviceFault),
                           .stage = "evaluating",
                           .message = "700"});
  must(e.job->step());
  REQUIRE(e.job->done());
  CHECK(e.supervisor.step().empty());  // its process ends
  e.trainer.clock.advance(std::chrono::hours(1));

  auto lease = must(e.trainer.directory->lease_of(e.trainer.row(5)));
  e.job = must(run::Job::begin(e.trainer.around, *e.trainer.directory, e.supervisor,
                               e.trainer.settings, e.trainer.row(5), std::move(*lease)));
  CHECK_FALSE(e.job->may_yield());
}

TEST_CASE("what was told before a stop is a reason to give way at the next start") {
  Evaluating e;
  e.say_interim();
  must(e.job->step());
  e.job->interrupt();
  e.trainer.clock.advance(std::chrono::hours(1));

  auto lease = must(e.trainer.directory->lease_of(e.trainer.row(5)));
  e.job = must(run::Job::begin(e.trainer.around, *e.trainer.directory, e.supervisor,
                               e.trainer.settings, e.trainer.row(5), std::move(*lease)));
  CHECK(e.job->may_yield());
}

TEST_CASE("a job that has all its answers does not give way any more") {
  Evaluating e;
  e.say_interim();
  const auto say_progress = [&e](const std::string& stage, std::int64_t done) {
    e.say(protocol::Progress{.id = e.id, .stage = stage, .done = done, .total = 200});
    must(e.job->step());
  };
  say_progress("evaluating", 199);
  CHECK(e.job->may_yield());
  say_progress("evaluating", 200);
  CHECK_FALSE(e.job->may_yield());
  say_progress("scoring", 5);
  CHECK_FALSE(e.job->may_yield());
  say_progress("preparing", 200);
  CHECK(e.job->may_yield());
}

TEST_CASE("a job that cannot read what was told of it before leaves the row where it was") {
  Trainer t;
  FakeEvaluatorScript script;
  supervise::Supervisor supervisor{std::make_unique<FakeEvaluator>(script), t.clock, {}};
  t.save(5);
  must(t.turn());
  auto lease = must(t.directory->lease_of(t.row(5)));
  t.on_database("ALTER TABLE interim RENAME COLUMN fraction TO part");

  CHECK_FALSE(
      run::Job::begin(t.around, *t.directory, supervisor, t.settings, t.row(5), std::move(*lease))
          .has_value());
  CHECK(t.row(5).state == state::EvaluationState::kLeased);
  CHECK(t.row(5).attempts == 0);
}

TEST_CASE("weights are hashed once for all that is told since the trainer's delete") {
  Evaluating e;
  tell_after_delete(e, kHash);
  REQUIRE(e.lines() == 1);

  e.say_interim(60);
  must(e.job->step());
  CHECK_FALSE(e.job->hashing());
  CHECK(e.lines() == 2);

  // Whatever touches them afterwards is looked at again.
  e.trainer.clock.advance(seconds(5));
  must(e.trainer.files.hard_link("/out/_evalcar/leases/5-1-regular/model.safetensors",
                                 "/out/other"));
  e.say_interim(90);
  must(e.job->step());
  CHECK(e.job->hashing());
  CHECK(e.lines() == 2);
}

TEST_CASE("what was told before a stop is told again without hashing") {
  Evaluating e;
  tell_after_delete(e, kHash);
  e.job->interrupt();
  e.trainer.clock.advance(std::chrono::hours(1));
  auto lease = must(e.trainer.directory->lease_of(e.trainer.row(5)));
  e.job = must(run::Job::begin(e.trainer.around, *e.trainer.directory, e.supervisor,
                               e.trainer.settings, e.trainer.row(5), std::move(*lease)));
  e.say(protocol::Hello{});
  e.say_loaded();
  must(e.job->step());
  e.id = e.script.received_of<protocol::Load>().back().id;
  e.say(protocol::Prepared{e.id, {{"docvqa_val", kHash}}});
  e.trainer.clock.advance(seconds(5));
  must(e.trainer.files.hard_link("/out/_evalcar/leases/5-1-regular/model.safetensors",
                                 "/out/other"));

  e.say_interim();
  must(e.job->step());
  CHECK_FALSE(e.job->hashing());
  CHECK(e.lines() == 1);
  e.say_interim(60);
  must(e.job->step());
  CHECK(e.job->hashing());
}
