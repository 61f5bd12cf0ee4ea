#include <array>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <map>

#include "store/state/sqlite.h"
#include "tests/unit/state/scenario.h"

using namespace evalcar;
using namespace evalcar::state;
using test::must;
using test::Scenario;
using enum EvaluationState;

namespace {

/// All rows of a query by a second, read-only connection, cells joined by "|": what a person sees
/// with the sqlite3 shell.
std::vector<std::string> query(const std::string& db, const std::string& sql, int columns) {
  const auto connection = must(Connection::open(db, Connection::Mode::kReadOnly, 1000));
  Statement rows = must(connection->prepare(sql));
  std::vector<std::string> found;
  while (must(rows.step())) {
    std::string line;
    for (int i = 0; i < columns; ++i) line += (i == 0 ? "" : "|") + rows.text(i);
    found.push_back(line);
  }
  return found;
}

std::vector<protocol::Sample> answers(std::int64_t from, std::int64_t to,
                                      const std::string& fingerprint = "f1") {
  std::vector<protocol::Sample> made;
  for (std::int64_t doc = from; doc < to; ++doc) {
    made.push_back({"job", "docvqa_val", doc, "answer " + std::to_string(doc), 3, fingerprint});
    if (doc > 0) made.back().cut_off = doc % 2 == 0;
  }
  return made;
}

}  // namespace

TEST_CASE("answers of an interrupted attempt are there again for the same weights only") {
  Scenario s;
  const std::int64_t id = s.plan(1).id;
  s.bring(id, kEvaluating, "w1");
  must(s.store->record_answers(id, answers(0, 3)));
  must(s.store->record_answers(id, answers(2, 5)));  // a batch that came twice
  s.reopen();

  CHECK(must(s.store->recover()) == 1);
  CHECK(s.state_of(id) == kLeased);
  CHECK(must(s.store->read().attempts(id)).at(0).outcome == "interrupted");
  CHECK(s.get(id).failures == 0);
  must(s.store->begin_attempt(id, "cpu"));
  const auto same = must(s.store->record_loaded(id, "w1", "float32"));
  CHECK(same.answers_kept == 5);
  CHECK(same.answers_discarded == 0);
  const auto kept = must(s.store->read().answers(id));
  REQUIRE(kept.size() == 5);
  CHECK(kept[4].text == "answer 4");
  CHECK(kept[4].output_tokens == 3);
  CHECK_FALSE(kept[0].cut_off.has_value());  // of an older version
  CHECK(kept[1].cut_off == false);
  CHECK(kept[4].cut_off == true);

  must(s.store->recover());
  must(s.store->begin_attempt(id, "cpu"));
  const auto other = must(s.store->record_loaded(id, "w2", "float32"));
  CHECK(other.answers_kept == 0);
  CHECK(other.answers_discarded == 5);
}

TEST_CASE("answers to an old prompt stay beside those to the new one, and each says which it is") {
  Scenario s;
  const std::int64_t id = s.plan(1).id;
  s.bring(id, kEvaluating, "w1");
  must(s.store->record_answers(id, answers(0, 3, "old")));
  must(s.store->record_answers(id, answers(0, 2, "new")));

  const std::vector<protocol::TaskFingerprint> now = {{"docvqa_val", "new"}};
  const auto prepared = must(s.store->record_prepared(id, now));

  CHECK(prepared.answers_usable == 2);
  CHECK_FALSE(prepared.duplicate_of.has_value());
  std::map<std::string, int> of;
  for (const protocol::Answered& known : must(s.store->read().answers(id))) ++of[known.fingerprint];
  CHECK(of == std::map<std::string, int>{{"old", 3}, {"new", 2}});
}

TEST_CASE("a result comes back as it was stored") {
  Scenario s;
  const std::int64_t id = s.plan(1, {"docvqa_val", "mmmu_val"}).id;
  s.bring(id, kEvaluating, "w1");
  protocol::EvaluationResult result;
  result.weights_sha256 = "w1";
  result.seconds = 3.5;
  result.attn_implementation = "sdpa";
  result.tasks = {test::anls_result("docvqa_val", 0.1), test::anls_result("mmmu_val", 0.2)};
  result.tasks[1].metrics.push_back({"mmmu_acc", "none", 0.25, 0.01, "bootstrap", "", true});
  result.tasks[1].metrics.push_back(
      {"other", "flexible", std::nullopt, std::nullopt, "", "no judge", false});
  result.tasks[1].notes = R"({"random_draws":3})";
  must(s.store->record_result(id, result));

  CHECK(must(s.store->read().result(id)) == result);
  CHECK(s.get(id).progress() == 1.0);
  CHECK(s.get(id).seconds == 3.5);
  CHECK(must(s.store->read().answers(id)).empty());
}

TEST_CASE("a result of other weights than the loaded ones is thrown away") {
  Scenario s;
  const std::int64_t id = s.plan(1).id;
  s.bring(id, kEvaluating, "w1");
  protocol::EvaluationResult result;
  result.weights_sha256 = "w2";
  result.tasks = {test::anls_result("docvqa_val", 0.1)};

  CHECK(s.store->record_result(id, result).error().code == ErrorCode::kCorruption);
  CHECK(s.state_of(id) == kEvaluating);
  CHECK(query(s.db(), "SELECT 1 FROM metrics", 1).empty());
}

TEST_CASE("a task that failed is kept with its reason, the others stand; all failed is no result") {
  Scenario s;
  const std::int64_t id = s.plan(1, {"docvqa_val", "mmmu_val"}).id;
  s.bring(id, kEvaluating, "w1");
  protocol::EvaluationResult result;
  result.weights_sha256 = "w1";
  protocol::TaskResult broken;
  broken.task = "mmmu_val";
  broken.error = "no such folder";
  result.tasks = {broken};
  CHECK(s.store->record_result(id, result).error().code == ErrorCode::kInvalidArgument);
  CHECK(s.store->record_result(id, result).error().message ==
        "every task failed; mmmu_val: no such folder");
  result.tasks = {test::anls_result("docvqa_val", 0.1), broken};
  must(s.store->record_result(id, result));

  const auto stored = must(s.store->read().result(id));
  CHECK(stored.tasks.at(1).error == "no such folder");
  CHECK(query(s.db(), "SELECT task FROM metrics", 1) == std::vector<std::string>{"docvqa_val"});
}

TEST_CASE("numbers that are not finite never enter the database") {
  Scenario s;
  const std::int64_t id = s.plan(1).id;
  s.bring(id, kEvaluating, "w1");
  protocol::EvaluationResult result;
  result.weights_sha256 = "w1";
  result.tasks = {test::anls_result("docvqa_val", 0.1)};
  result.tasks[0].metrics[0].value = std::numeric_limits<double>::quiet_NaN();
  result.tasks[0].metrics[0].stderr_value = std::numeric_limits<double>::infinity();
  must(s.store->record_result(id, result));

  CHECK(query(s.db(), "SELECT value IS NULL, stderr IS NULL, missing FROM metrics", 3) ==
        std::vector<std::string>{"1|1|the value is not a finite number"});
}

TEST_CASE("the same weights at the same step are measured once") {
  Scenario s;
  const Evaluation first = s.plan(1);
  s.bring(first.id, kScored, "w1");
  // The trainer saves the same step again (end of training): a new generation, equal weights.
  const auto again = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(1, "rewritten")));
  REQUIRE(again.is_new);
  CHECK(again.replaces == first.checkpoint_id);
  const Evaluation second = s.plan_for(again.checkpoint.id);
  s.bring(second.id, kEvaluating, "w1");

  const std::vector<protocol::TaskFingerprint> same = {{"docvqa_val", "f1"}};
  const auto outcome = must(s.store->record_prepared(second.id, same));

  CHECK(outcome.duplicate_of == first.id);
  CHECK(s.state_of(second.id) == kSuperseded);
  CHECK(s.get(second.id).reason.find("evaluation 1") != std::string::npos);
  CHECK(must(s.store->read().attempts(second.id)).at(0).outcome == "superseded");
}

TEST_CASE("weights that come back after others have their number again, and are not measured") {
  Scenario s;
  const Evaluation first = s.plan(1);
  s.bring(first.id, kScored, "w1", 0.5);
  const auto other = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(1, "other")));
  s.bring(s.plan_for(other.checkpoint.id).id, kScored, "w2", 0.75);
  const auto back = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(1, "back")));
  const Evaluation third = s.plan_for(back.checkpoint.id);
  s.bring(third.id, kEvaluating, "w1");

  const std::vector<protocol::TaskFingerprint> same = {{"docvqa_val", "f1"}};
  const auto outcome = must(s.store->record_prepared(third.id, same));
  CHECK_FALSE(outcome.duplicate_of.has_value());
  REQUIRE(outcome.measured_by == first.id);
  CHECK(s.state_of(third.id) == kEvaluating);
  must(s.store->record_result(third.id, must(s.store->read().result(*outcome.measured_by))));

  CHECK(query(s.db(), "SELECT step, value, weights_sha256, evaluation_id FROM metrics", 4) ==
        std::vector<std::string>{"1|0.5|w1|" + std::to_string(third.id)});
  CHECK(query(s.db(), "SELECT count(*) FROM result", 1) == std::vector<std::string>{"2"});
  // Once they are shown, the same again is needless.
  const auto again = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(1, "touched")));
  const Evaluation fourth = s.plan_for(again.checkpoint.id);
  s.bring(fourth.id, kEvaluating, "w1");
  const auto needless = must(s.store->record_prepared(fourth.id, same));
  CHECK(needless.duplicate_of.has_value());
  CHECK_FALSE(needless.measured_by.has_value());
  CHECK(s.state_of(fourth.id) == kSuperseded);
}

TEST_CASE(
    "the same weights with another prompt are measured, and their number is the one that counts") {
  Scenario s;
  const Evaluation first = s.plan(1, {"docvqa_val", "mmmu_val"});
  s.bring(first.id, kScored, "w1", 0.5, "old");
  const auto again = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(1, "rewritten")));
  const Evaluation second = s.plan_for(again.checkpoint.id, {"docvqa_val", "mmmu_val"});
  s.bring(second.id, kEvaluating, "w1");

  const std::vector<protocol::TaskFingerprint> now = {{"docvqa_val", "old"}, {"mmmu_val", "new"}};
  CHECK_FALSE(must(s.store->record_prepared(second.id, now)).duplicate_of.has_value());
  protocol::EvaluationResult result;
  result.weights_sha256 = "w1";
  result.tasks = {test::anls_result("docvqa_val", 0.9, "old"),
                  test::anls_result("mmmu_val", 0.75, "new")};
  must(s.store->record_result(second.id, result));

  CHECK(query(s.db(), "SELECT task, value, fingerprint FROM metrics ORDER BY task", 3) ==
        std::vector<std::string>{"docvqa_val|0.5|old", "mmmu_val|0.75|new"});
  CHECK(query(s.db(), "SELECT count(*) FROM result", 1) == std::vector<std::string>{"3"});
}

TEST_CASE(
    "an evaluation that is done again with other data shows the new number and its lines alone") {
  Scenario s;
  const std::int64_t id = s.plan(1, {"docvqa_val", "mmmu_val"}).id;
  s.bring(id, kEvaluating, "w1");
  const auto score = [&](double value, const std::string& fingerprint, std::int64_t lines,
                         const std::string& error) {
    std::vector<protocol::Scored> scored;
    for (std::int64_t doc = 0; doc < lines; ++doc)
      scored.push_back({"", "docvqa_val", doc, R"({"is":")" + fingerprint + R"("})", fingerprint});
    must(s.store->record_samples(id, scored));
    protocol::EvaluationResult result;
    result.weights_sha256 = "w1";
    result.tasks = {test::anls_result("docvqa_val", value, fingerprint),
                    test::anls_result("mmmu_val", value)};
    if (!error.empty()) {
      result.tasks[1] = {};
      result.tasks[1].task = "mmmu_val";
      result.tasks[1].error = error;
    }
    must(s.store->record_result(id, result));
  };
  score(0.5, "old", 3, "no data");
  const std::string shown =
      "SELECT value, (SELECT group_concat(line->>'is') FROM samples) FROM "
      "metrics WHERE task = 'docvqa_val'";
  CHECK(query(s.db(), shown, 2) == std::vector<std::string>{"0.5|old,old,old"});

  must(s.store->begin_publication(
      id, 0, [](std::int64_t, auto) -> Result<std::string> { return std::string("{}"); }));
  must(s.store->finish_publication(id, {}));
  must(s.store->transition(id, kComplete, "tried again"));
  must(s.store->mark_leased(id, "/out/run/_evalcar/leases/x"));
  must(s.store->begin_attempt(id, "cpu"));
  must(s.store->record_loaded(id, "w1", "float32"));
  CHECK(query(s.db(), shown, 2) == std::vector<std::string>{"0.5|old,old,old"});
  score(0.25, "new", 2, "");

  CHECK(query(s.db(), shown, 2) == std::vector<std::string>{"0.25|new,new"});
  int lines = 0;
  must(s.store->read().for_each_sample(id, "docvqa_val", [&](std::string_view) -> Status {
    ++lines;
    return {};
  }));
  CHECK(lines == 2);
}

TEST_CASE("a result that does not say of what it is enters nothing") {
  Scenario s;
  const std::int64_t id = s.plan(1).id;
  s.bring(id, kEvaluating, "w1");
  protocol::EvaluationResult result;
  result.weights_sha256 = "w1";
  result.tasks = {test::anls_result("docvqa_val", 0.1, "")};

  CHECK(s.store->record_result(id, result).error().code == ErrorCode::kInvalidArgument);
  CHECK(s.state_of(id) == kEvaluating);
}

TEST_CASE("equal weights at another step have their own number there") {
  Scenario s;
  s.bring(s.plan(1).id, kScored, "w1", 0.5);
  const std::int64_t second = s.plan(2).id;
  s.bring(second, kScored, "w1", 0.9);  // cannot be: the known number of these weights stands

  CHECK(query(s.db(), "SELECT step, value FROM metrics ORDER BY step", 2) ==
        std::vector<std::string>{"1|0.5", "2|0.5"});
  CHECK(query(s.db(), "SELECT count(*) FROM result", 1) == std::vector<std::string>{"1"});
  int lines = 0;
  must(s.store->read().for_each_sample(second, "docvqa_val", [&](std::string_view) -> Status {
    ++lines;
    return {};
  }));
  CHECK(lines == 2);
}

TEST_CASE(
    "where the samples of a known number were pruned, those that came with it again are kept") {
  Scenario s;
  const std::int64_t pruned = s.plan(1).id;
  s.bring(pruned, kScored, "w1");
  must(s.store->begin_publication(
      pruned, 0, [](std::int64_t, auto) -> Result<std::string> { return std::string("{}"); }));
  must(s.store->finish_publication(pruned, {}));
  REQUIRE(must(s.store->prune(pruned, std::array{pruned})) == 2);
  const std::int64_t again = s.plan(1, {"docvqa_val", "mmmu_val"}).id;  // other tasks
  s.bring(again, kScored, "w1");
  const auto later = s.plan(2).id;  // of the same weights: the lines are there
  s.bring(later, kScored, "w1");

  for (const std::int64_t id : {pruned, again, later}) {
    std::size_t lines = 0;
    must(s.store->read().for_each_sample(id, "docvqa_val", [&](std::string_view) {
      ++lines;
      return Status();
    }));
    CHECK(lines == 2);
  }
  CHECK(must(s.store->read().sample_count(again)) == 4);
  CHECK(must(s.store->read().sample_count(later)) == 0);
}

TEST_CASE("a rewritten step shows its new number only") {
  Scenario s;
  s.bring(s.plan(1).id, kScored, "w1", 0.5);
  const auto again = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(1, "rewritten")));
  s.bring(s.plan_for(again.checkpoint.id).id, kScored, "w2", 0.75);

  CHECK(query(s.db(), "SELECT step, value, weights_sha256 FROM metrics", 3) ==
        std::vector<std::string>{"1|0.75|w2"});
  CHECK(query(s.db(), "SELECT DISTINCT weights_sha256 FROM samples", 1) ==
        std::vector<std::string>{"w2"});
}

TEST_CASE("another set of tasks with a common one leaves one current number of each task") {
  Scenario s;
  const Evaluation first = s.plan(1, {"docvqa_val"});
  s.bring(first.id, kScored, "w1", 0.5);
  s.bring(s.plan_for(first.checkpoint_id, {"docvqa_val", "mmmu_val"}).id, kScored, "w1", 0.6);

  CHECK(query(s.db(), "SELECT task, value FROM metrics ORDER BY task", 2) ==
        std::vector<std::string>{"docvqa_val|0.5", "mmmu_val|0.6"});
}

TEST_CASE("tasks that part are not measured again where the numbers of these weights are there") {
  Scenario s;
  const Evaluation both = s.plan(1, {"docvqa_val", "mmmu_val"});
  s.bring(both.id, kScored, "w1", 0.5);
  const Evaluation one = s.plan_for(both.checkpoint_id, {"mmmu_val"});
  s.bring(one.id, kEvaluating, "w1");

  const std::vector<protocol::TaskFingerprint> same = {{"mmmu_val", "f1"}};
  CHECK(must(s.store->record_prepared(one.id, same)).duplicate_of == both.id);

  CHECK(s.state_of(one.id) == kSuperseded);
  CHECK(query(s.db(), "SELECT task, value FROM metrics ORDER BY task", 2) ==
        std::vector<std::string>{"docvqa_val|0.5", "mmmu_val|0.5"});
}

TEST_CASE("tasks that join, and those of another fingerprint, are measured") {
  Scenario s;
  const Evaluation one = s.plan(1, {"docvqa_val"});
  s.bring(one.id, kScored, "w1", 0.5);
  const Evaluation both = s.plan_for(one.checkpoint_id, {"docvqa_val", "mmmu_val"});
  s.bring(both.id, kEvaluating, "w1");
  const std::vector<protocol::TaskFingerprint> now = {{"docvqa_val", "f1"}, {"mmmu_val", "f1"}};
  CHECK_FALSE(must(s.store->record_prepared(both.id, now)).duplicate_of.has_value());
  must(s.store->transition(both.id, kLeased));

  const Evaluation rest = s.plan_for(one.checkpoint_id, {"mmmu_val"});
  s.bring(rest.id, kEvaluating, "w1");
  const std::vector<protocol::TaskFingerprint> other = {{"mmmu_val", "f2"}};
  CHECK_FALSE(must(s.store->record_prepared(rest.id, other)).duplicate_of.has_value());
}

TEST_CASE("the views have the documented columns and give what was stored") {
  Scenario s;
  const std::int64_t id = s.plan(500, {"docvqa_val"}, "ema").id;
  s.bring(id, kScored, "abc", 0.712);
  s.plan(600);

  CHECK(query(s.db(),
              "SELECT run, step, checkpoint_type, task, metric, value, stderr, n, weights_sha256, "
              "finished_at FROM metrics WHERE task='docvqa_val' AND metric='anls' AND "
              "checkpoint_type='ema' ORDER BY step",
              10) ==
        std::vector<std::string>{
            "run-01234567-1|500|ema|docvqa_val|anls|0.712|0.25|2|abc|2026-11-21T09:00:01.000000Z"});
  CHECK(
      query(s.db(),
            "SELECT evaluation_id, run, step, checkpoint, generation, checkpoint_type, tasks, "
            "state, reason, progress, attempts, failures, weights_sha256, dtype, seq FROM "
            "evaluations ORDER BY step",
            15) ==
      std::vector<std::string>{
          "1|run-01234567-1|500|checkpoint-500|1|ema|[\"docvqa_val\"]|scored||1.0|1|0|abc|"
          "float32|",
          "2|run-01234567-1|600|checkpoint-600|1|regular|[\"docvqa_val\"]|found||0.0|0|0||auto|"});
  CHECK(query(s.db(),
              "SELECT checkpoint_id, run, step, name, generation, path, layout, checkpoint_type, "
              "complete, reason, size_bytes, gone_at, kept_path FROM checkpoints WHERE step = 500",
              13) == std::vector<std::string>{"1|run-01234567-1|500|checkpoint-500|1|/out/run/"
                                              "checkpoint-500|hugging_face|regular|1||4||"});
  CHECK(query(s.db(), "SELECT evaluation_id, step, number, outcome, device FROM attempts", 5) ==
        std::vector<std::string>{"1|500|1|scored|cpu"});
  CHECK(query(s.db(),
              "SELECT step, checkpoint_type, task, doc_id, line->>'filtered_resps', "
              "weights_sha256 FROM samples",
              6) ==
        std::vector<std::string>{"500|ema|docvqa_val|0|A|abc", "500|ema|docvqa_val|1|A|abc"});
}

TEST_CASE("the reader's questions answer as the views do") {
  Scenario s;
  s.bring(s.plan(2).id, kScored, "w2", 0.2);
  s.bring(s.plan(1).id, kScored, "w1", 0.1);
  const Reader reader = must(Reader::open(s.db()));

  const auto all = must(reader.metrics());
  REQUIRE(all.size() == 2);
  CHECK(all[0].step == 1);
  CHECK(all[0].value == 0.1);
  CHECK(all[1].n == 2);
  MetricFilter none;
  none.task = "mmmu_val";
  CHECK(must(reader.metrics(none)).empty());
  EvaluationFilter scored;
  scored.states = {kScored, kPublished};
  scored.step = 2;
  CHECK(must(reader.evaluations(scored)).size() == 1);
  CHECK(must(reader.runs()).at(0).output_dir == "/out/run");
  CHECK(must(reader.checkpoints(s.run.id)).size() == 2);
  CHECK(reader.result(99).error().code == ErrorCode::kNotFound);
}

TEST_CASE("the sequence of lines rises strictly, above what the file already has") {
  Scenario s;
  const auto line = [](std::int64_t seq, const Store::Superseded& superseded) {
    return Result<std::string>(std::to_string(seq) + "<" +
                               std::to_string(superseded.line.value_or(0)));
  };
  const std::int64_t first = s.plan(1).id;
  s.bring(first, kScored, "w1");
  CHECK(must(s.store->begin_publication(first, 7, line)).seq == 8);
  CHECK(must(s.store->begin_publication(first, 20, line)).seq == 8);  // decided already
  must(s.store->finish_publication(first, {"metrics.jsonl"}));

  const auto again = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(1, "rewritten")));
  const std::int64_t second = s.plan_for(again.checkpoint.id).id;
  s.bring(second, kScored, "w2");
  const Publication newer = must(s.store->begin_publication(second, 0, line));
  CHECK(newer.seq == 9);
  CHECK(newer.supersedes == 8);
  CHECK(newer.line == "9<8");

  const std::int64_t other_tasks = s.plan_for(again.checkpoint.id, {"mmmu_val"}).id;
  s.bring(other_tasks, kScored, "w2");
  CHECK_FALSE(must(s.store->begin_publication(other_tasks, 0, line)).supersedes.has_value());
  CHECK(must(s.store->read().publications(s.run.id)).size() == 3);
}

TEST_CASE("an evaluation that is not scored has no line") {
  Scenario s;
  const std::int64_t id = s.plan(1).id;
  s.bring(id, kEvaluating);
  CHECK_FALSE(
      s.store
          ->begin_publication(
              id, 0, [](std::int64_t, auto) -> Result<std::string> { return std::string("x"); })
          .has_value());
  CHECK_FALSE(must(s.store->read().publication(id)).has_value());
  s.bring(s.plan(2).id, kScored);
  CHECK_FALSE(s.store->finish_publication(2, {}).has_value());  // no line was decided
  CHECK(s.state_of(2) == kScored);
}
