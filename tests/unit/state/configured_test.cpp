#include <array>
#include <catch2/catch_test_macros.hpp>

#include "store/state/sqlite.h"
#include "tests/unit/state/scenario.h"

using namespace evalcar;
using namespace evalcar::state;
using test::must;
using test::Scenario;
using enum EvaluationState;

namespace {

/// What the view `metrics` says, by step: "1 0.9", and "2 0.8 other" of other settings.
std::vector<std::string> numbers(const Scenario& s) {
  std::vector<std::string> found;
  for (const MetricRow& row : must(s.store->read().metrics())) {
    std::string text = std::to_string(row.step) + " " + std::to_string(*row.value).substr(0, 3);
    found.push_back(text + (row.configured ? "" : " other"));
  }
  return found;
}

/// Measured with this limit, and published.
std::int64_t measured(Scenario& s, std::int64_t step, double limit, double value) {
  const std::int64_t id = limit > 0 ? s.plan_limited(step, limit).id : s.plan(step).id;
  s.bring(id, kScored, "w" + std::to_string(step), value);
  must(s.store->begin_publication(
      id, 0, [](std::int64_t, auto) -> Result<std::string> { return std::string("line"); }));
  must(s.store->finish_publication(id, {}));
  return id;
}

}  // namespace

TEST_CASE("before a configuration is known, every number counts as of it") {
  Scenario s;
  measured(s, 1, 0, 0.9);
  measured(s, 2, 4, 0.8);

  CHECK(numbers(s) == std::vector<std::string>{"1 0.9", "2 0.8"});
}

TEST_CASE("a number of other settings is shown where there is no other, and marked") {
  Scenario s;
  s.configure();
  measured(s, 1, 0, 0.9);
  measured(s, 2, 0, 0.8);
  s.configure(4);
  measured(s, 2, 4, 0.1);

  CHECK(numbers(s) == std::vector<std::string>{"1 0.9 other", "2 0.1"});
}

TEST_CASE("a configuration that comes back has its numbers back, also at the next start") {
  Scenario s;
  s.configure();
  const std::int64_t first = measured(s, 1, 0, 0.9);
  s.configure(4);
  measured(s, 1, 4, 0.1);

  s.configure();
  CHECK(numbers(s) == std::vector<std::string>{"1 0.9"});
  CHECK(must(s.store->read().metrics())[0].evaluation_id == first);
  s.reopen();
  s.configure();
  CHECK(numbers(s) == std::vector<std::string>{"1 0.9"});
}

TEST_CASE("of several numbers of a configuration the last published counts, whatever the clock") {
  Scenario s;
  s.configure();
  measured(s, 1, 0, 0.9);
  const auto again = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(1, "rewritten")));
  const std::int64_t second = s.plan_for(again.checkpoint.id).id;
  s.clock.advance(std::chrono::hours{-1});
  s.bring(second, kScored, "w1b", 0.5);
  s.configure(4);

  s.configure();

  CHECK(numbers(s) == std::vector<std::string>{"1 0.5"});
}

TEST_CASE("a configuration that comes back has no number of files that were rewritten since") {
  Scenario s;
  s.configure();
  measured(s, 1, 0, 0.9);
  s.configure(4);
  const auto again = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(1, "rewritten")));
  const NewEvaluation wanted{again.checkpoint.id, "regular", "auto", Scenario::limited(4)};
  s.bring(must(s.store->plan_evaluation(wanted)).id, kScored, "w1b", 0.5);

  s.configure();

  CHECK(numbers(s) == std::vector<std::string>{"1 0.5 other"});
}

TEST_CASE("a configuration that comes back has its number of weights that were only saved again") {
  Scenario s;
  s.configure();
  s.bring(s.plan(1).id, kScored, "w", 0.9);
  s.configure(4);
  const auto again = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(1, "saved again")));
  const NewEvaluation wanted{again.checkpoint.id, "regular", "auto", Scenario::limited(4)};
  s.bring(must(s.store->plan_evaluation(wanted)).id, kScored, "w", 0.5);

  s.configure();

  CHECK(numbers(s) == std::vector<std::string>{"1 0.9"});
}

TEST_CASE("a number of other settings takes no configured one's place, however late it comes") {
  Scenario s;
  s.configure();
  measured(s, 1, 0, 0.9);
  measured(s, 1, 4, 0.1);  // from the published files of another time

  CHECK(numbers(s) == std::vector<std::string>{"1 0.9"});
}

TEST_CASE("of the settings that are configured the question that was asked last counts") {
  Scenario s;
  s.configure();
  s.question = "q1";
  measured(s, 1, 0, 0.9);
  measured(s, 2, 0, 0.8);
  s.question = "q2";
  measured(s, 4, 0, 0.2);
  measured(s, 3, 0, 0.1);  // a step that waited longer

  CHECK(numbers(s) == std::vector<std::string>{"1 0.9 other", "2 0.8 other", "3 0.1", "4 0.2"});

  s.question = "q1";  // back again
  measured(s, 5, 0, 0.7);
  CHECK(numbers(s) ==
        std::vector<std::string>{"1 0.9", "2 0.8", "3 0.1 other", "4 0.2 other", "5 0.7"});
}

TEST_CASE("what was measured for a job with other settings says nothing of the question") {
  Scenario s;
  s.configure();
  s.question = "q1";
  measured(s, 1, 0, 0.9);
  s.question = "q2";
  NewEvaluation asked{s.plan(2).checkpoint_id, "regular", "auto", Scenario::limited(4)};
  asked.settings.requested = 1;
  s.bring(must(s.store->plan_evaluation(asked)).id, kScored, "w2", 0.99);

  CHECK(numbers(s) == std::vector<std::string>{"1 0.9"});
}

TEST_CASE("numbers that do not tell their question count with all, and each task has its own") {
  Scenario s;
  s.configure();
  measured(s, 1, 0, 0.9);
  s.question = "q1";
  measured(s, 2, 0, 0.8);
  const std::int64_t other = s.plan(3, {"mmmu_val"}).id;
  s.question = "q2";
  s.bring(other, kScored, "w3", 0.7);

  CHECK(numbers(s) == std::vector<std::string>{"1 0.9", "2 0.8", "3 0.7"});
  const auto rows = must(s.store->read().metrics());
  CHECK(rows[0].question.empty());
  CHECK(rows[1].question == "q1");
  CHECK(must(s.store->read().result(rows[1].evaluation_id)).tasks[0].question == "q1");
}

TEST_CASE("what a job asked for never counts, whichever configuration comes") {
  Scenario s;
  s.configure();
  NewEvaluation asked{s.plan(1).checkpoint_id, "regular", "auto", Scenario::limited(4)};
  asked.settings.requested = 1;
  s.bring(must(s.store->plan_evaluation(asked)).id, kScored, "w1", 0.99);

  s.configure(4);
  const std::string of_job = settings_sha256(asked.settings, "auto");
  must(s.store->set_configured(s.run.id, {of_job, of_job}));

  CHECK(numbers(s).empty());
}

TEST_CASE("averages go by settings of their own") {
  Scenario s;
  const auto one = [&s](const std::string& kind) {
    s.bring(s.plan_limited(1, 4, kind).id, kScored, kind, 0.5);
  };
  one("regular");
  one("average");
  const std::string mine = settings_sha256(Scenario::limited(4), "auto");

  must(s.store->set_configured(s.run.id, {mine, "over another number of checkpoints"}));

  for (const MetricRow& row : must(s.store->read().metrics())) {
    CHECK(row.configured == (row.checkpoint_type == "regular"));
  }
}

TEST_CASE("the version of the numbers is another one when only their settings are") {
  Scenario s;
  s.configure();
  measured(s, 1, 0, 0.9);
  const auto before = must(s.store->read().numbers_version(s.run.id));
  s.configure();
  CHECK(must(s.store->read().numbers_version(s.run.id)) == before);

  s.configure(4);

  CHECK(must(s.store->read().numbers_version(s.run.id)) != before);
}

TEST_CASE("of scores of a part those of the configuration are shown first") {
  Scenario s;
  const auto told = [&s](std::int64_t id, double value, const std::string& key) {
    s.bring(id, kEvaluating, "w1");
    protocol::Interim interim{.weights_sha256 = "w1", .fraction = 0.1};
    interim.tasks.resize(1);
    interim.tasks[0].task = "docvqa_val";
    interim.tasks[0].n = 20;
    interim.tasks[0].documents = 200;
    interim.tasks[0].metrics = {{"anls", "none", value, 0.1, "", "", true}};
    must(s.store->record_interim(
        id, interim, key, 0,
        [](std::int64_t, auto) -> Result<std::string> { return std::string("part"); }));
    must(s.store->recover());
  };
  s.configure();
  told(s.plan(1).id, 0.25, "a");
  s.configure(4);
  told(s.plan_limited(1, 4).id, 0.75, "b");
  const auto shown = [&s] {
    const auto reader = must(Connection::open(s.db(), Connection::Mode::kReadOnly, 1000));
    return must(reader->first_text("SELECT value || ' ' || configured FROM interim_metrics"));
  };
  CHECK(shown() == "0.75 1");

  s.configure();

  CHECK(shown() == "0.25 1");
}

TEST_CASE("of averages over different numbers of checkpoints that of the configuration counts") {
  Scenario s;
  const std::array<double, 2> limits = {2, 3};  // stand for the numbers
  for (const double limit : limits) {
    s.configure(limit);
    s.bring(s.plan_limited(1, limit, "average").id, kScored, "w" + std::to_string(limit),
            limit / 10);
  }
  for (int i = 0; i < 2; ++i) {
    for (const double limit : limits) {
      s.configure(limit);
      CHECK(numbers(s) == std::vector{"1 " + std::to_string(limit / 10).substr(0, 3)});
    }
  }
}

TEST_CASE("an average of a configuration that comes back is none of files that were rewritten") {
  Scenario s;
  const auto average = [](double limit) {
    protocol::EvaluationSettings settings = Scenario::limited(limit);
    settings.average_last = 2;
    return settings;
  };
  const auto configure = [&](double limit) {
    const std::string sha256 = settings_sha256(average(limit), "auto");
    must(s.store->set_configured(s.run.id, {"other", sha256}));
  };
  const auto measure = [&](std::int64_t checkpoint, double limit, double value) {
    const NewEvaluation wanted{checkpoint, "average", "auto", average(limit)};
    s.bring(must(s.store->plan_evaluation(wanted)).id, kScored, "w" + std::to_string(checkpoint),
            value);
  };
  configure(8);
  measure(s.plan(1).checkpoint_id, 8, 0.9);
  configure(4);
  const auto again = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(1, "rewritten")));
  measure(again.checkpoint.id, 4, 0.5);

  configure(8);

  CHECK(numbers(s) == std::vector<std::string>{"1 0.5 other"});
}
