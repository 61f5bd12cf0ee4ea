#include "agent/publish/prometheus.h"

#include <catch2/catch_test_macros.hpp>

#include "store/state/sqlite.h"
#include "tests/unit/publish/requested.h"
#include "tests/unit/state/scenario.h"

using namespace evalcar;
using test::must;

namespace {

bool has_line(const std::string& text, const std::string& line) {
  return text.starts_with(line + "\n") || text.find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("Prometheus sees how evaluations stand, the lag, and latest and best of each series") {
  test::Scenario s;
  for (const auto& [step, value] : {std::pair<std::int64_t, double>{100, 0.75}, {200, 0.5}}) {
    const auto id = s.plan(step).id;
    s.bring(id, state::EvaluationState::kScored, "w" + std::to_string(step), value);
    must(s.store->begin_publication(
        id, 0, [](std::int64_t, const auto&) { return Result<std::string>("{}"); }));
    must(s.store->finish_publication(id, {"x"}));
  }
  must(s.store->transition(s.plan(300).id, state::EvaluationState::kLost, "gone"));
  s.plan(400);
  s.clock.advance(std::chrono::seconds{30});

  const std::string text = publish::prometheus_text({{&s.store->read()}}, s.clock);

  const std::string run = "run=\"run-01234567-1\"";
  const std::string series =
      "{" + run + R"(,task="docvqa_val",metric="anls",filter="none",checkpoint_type="regular"})";
  CHECK(has_line(text, "evalcar_agent_running 0"));
  CHECK(has_line(text, "evalcar_evaluations{" + run + ",state=\"published\"} 2"));
  CHECK(has_line(text, "evalcar_evaluations{" + run + ",state=\"lost\"} 1"));
  CHECK(has_line(text, "evalcar_evaluations{" + run + ",state=\"failed\"} 0"));
  CHECK(has_line(text, "evalcar_attempts_total{" + run + "} 2"));
  CHECK(has_line(text, "evalcar_lag_steps{" + run + "} 200"));
  CHECK(has_line(text, "evalcar_lag_seconds{" + run + "} 30"));
  CHECK(has_line(
      text, "evalcar_evaluation_duration_seconds_sum{" + run + ",checkpoint_type=\"regular\"} 25"));
  CHECK(has_line(text, "evalcar_evaluation_duration_seconds_count{" + run +
                           ",checkpoint_type=\"regular\"} 2"));
  CHECK(has_line(text, "evalcar_score" + series + " 0.5"));
  CHECK(has_line(text, "evalcar_score_stderr" + series + " 0.25"));
  CHECK(has_line(text, "evalcar_score_step" + series + " 200"));
  CHECK(has_line(text, "evalcar_best_score" + series + " 0.75"));
  CHECK(has_line(text, "evalcar_best_score_step" + series + " 100"));
  CHECK(has_line(text, "# TYPE evalcar_attempts_total counter"));
}

TEST_CASE("what was measured for a job is no time of the series, and does not catch up with it") {
  test::Scenario s;
  const auto id = s.plan(100).id;
  s.bring(id, state::EvaluationState::kScored);
  must(s.store->begin_publication(
      id, 0, [](std::int64_t, const auto&) { return Result<std::string>("{}"); }));
  must(s.store->finish_publication(id, {"x"}));
  const auto last = [&] {
    const std::string text = publish::prometheus_text({{&s.store->read()}}, s.clock);
    const auto start = text.find("\nevalcar_last_result_timestamp_seconds{");
    REQUIRE(start != std::string::npos);
    return text.substr(start + 1, text.find('\n', start + 1) - start - 1);
  };
  const std::string before = last();
  const auto job = test::plan_requested(s, 200).id;
  s.bring(job, state::EvaluationState::kScored, "w200");
  must(s.store->finish_unlisted(job));

  const std::string text = publish::prometheus_text({{&s.store->read()}}, s.clock);

  const std::string run = "run=\"run-01234567-1\"";
  CHECK(has_line(text, "evalcar_lag_steps{" + run + "} 100"));
  CHECK(has_line(text, "evalcar_evaluation_duration_seconds_count{" + run +
                           ",checkpoint_type=\"regular\"} 1"));
  CHECK(has_line(text, "evalcar_evaluations{" + run + ",state=\"published\"} 2"));
  CHECK(last() == before);
}

TEST_CASE("Prometheus sees the numbers of the configured settings alone") {
  test::Scenario s;
  s.bring(s.plan(200).id, state::EvaluationState::kScored, "w200", 0.75);
  s.bring(s.plan_limited(100, 4).id, state::EvaluationState::kScored, "w100", 0.25);
  s.configure(4);

  const std::string text = publish::prometheus_text({{&s.store->read()}}, s.clock);

  const std::string series =
      R"({run="run-01234567-1",task="docvqa_val",metric="anls",filter="none",checkpoint_type="regular"})";
  CHECK(has_line(text, "evalcar_score_step" + series + " 100"));
  CHECK(has_line(text, "evalcar_best_score" + series + " 0.25"));
}

TEST_CASE("Prometheus' labels are escaped, and an agent tells its work") {
  test::Scenario s;
  s.plan(100);
  publish::AgentFacts agent;
  agent.version = "1\"2\\3\n4";
  agent.uptime_s = 12.5;
  agent.warning = "slow";
  agent.current = {1, 500, "ema", {"evaluating", "docvqa_val", 25, 100, 2.0, 37.5}};
  const std::string text = publish::prometheus_text({{&s.store->read(), agent}}, s.clock);
  CHECK(has_line(text, R"(evalcar_build_info{version="1\"2\\3\n4",device=""} 1)"));
  CHECK(has_line(text, "evalcar_agent_uptime_seconds 12.5"));
  CHECK(has_line(text, "evalcar_agent_warning 1"));
  const std::string now = R"({run="run-01234567-1",checkpoint_type="ema",stage="evaluating"})";
  CHECK(has_line(text, "evalcar_current_step" + now + " 500"));
  CHECK(has_line(text, "evalcar_current_progress_ratio" + now + " 0.25"));
  CHECK(has_line(text, "evalcar_current_remaining_seconds" + now + " 37.5"));
  CHECK(text.find("nan") == std::string::npos);
}

TEST_CASE("several databases are one page, whose agent is told once") {
  test::Scenario first;
  test::Scenario second;
  first.plan(100);
  second.plan(200);
  publish::AgentFacts one;
  publish::AgentFacts other;
  other.warning = "slow";
  other.current = {1, 200, "regular", {"evaluating", "docvqa_val", 1, 2, {}, {}}};

  const std::string text = publish::prometheus_text(
      {{&first.store->read(), one}, {&second.store->read(), other}}, first.clock);

  const auto count = [&text](const std::string& part) {
    std::size_t found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  CHECK(count("# TYPE evalcar_evaluations gauge") == 1);
  CHECK(count("\nevalcar_evaluations{") == 24);
  CHECK(count("evalcar_agent_running 1") == 1);
  CHECK(has_line(text, "evalcar_agent_warning 1"));
  CHECK(count("\nevalcar_current_step{run=") == 1);
  const auto begin = text.find("\nevalcar_evaluations{");
  const auto end = text.rfind("\nevalcar_evaluations{");
  CHECK(text.substr(begin, end - begin).find('#') == std::string::npos);  // they stand together
}

TEST_CASE("a database that cannot be read fails alone, and says so") {
  test::Scenario good;
  good.plan(100);
  test::Scenario torn;
  torn.plan(200);
  const std::string damaged = torn.db();
  torn.store.reset();
  {
    auto connection = must(state::Connection::open_existing(damaged, 1));
    must(connection->execute("ALTER TABLE evaluation RENAME TO elsewhere"));
  }
  const auto opened = must(state::Reader::open(damaged));
  publish::AgentFacts busy;
  busy.current = {1, 300, "regular", {"loading", "", 0, 0, {}, {}}};
  std::string why;

  const std::string text = publish::prometheus_text(
      {{.reader = nullptr, .agent = busy, .run = "", .database = "/state/lost-89abcdef.db"},
       {.reader = &opened,
        .run = "torn-1",
        .database = damaged,
        .failed = [&why](const Error& error) { why = error.message; }},
       {.reader = &good.store->read()}},
      good.clock);

  CHECK(has_line(text, R"(evalcar_up{run="lost-89abcdef"} 0)"));
  CHECK(has_line(text, R"(evalcar_current_step{run="lost-89abcdef",checkpoint_type="regular",)"
                       R"(stage="loading"} 300)"));
  CHECK(has_line(text, R"(evalcar_up{run="torn-1"} 0)"));
  CHECK_FALSE(why.empty());
  CHECK(text.find(R"({run="torn-1",)") == std::string::npos);  // nothing of it is told by halves
  CHECK(has_line(text, R"(evalcar_up{run="run-01234567-1"} 1)"));
  CHECK(has_line(text, R"(evalcar_evaluations{run="run-01234567-1",state="found"} 1)"));
}

TEST_CASE("names that are no UTF-8 make labels that are, each its own") {
  test::Scenario s;
  s.run = must(s.store->ensure_run("run-\xff\x01", "/out/\xff", 1, 11));
  publish::AgentFacts agent;
  agent.device = "cuda:\xc3\xa9\xc3";

  const std::string text = publish::prometheus_text(
      {{&s.store->read(), agent}, {.reader = nullptr, .run = "run-\xfe"}}, s.clock);

  CHECK(has_line(text, R"(evalcar_up{run="run-\\xff\\x01-1"} 1)"));
  CHECK(has_line(text, R"(evalcar_up{run="run-\\xfe"} 0)"));
  CHECK(has_line(text, "evalcar_build_info{version=\"\",device=\"cuda:\xc3\xa9\\\\xc3\"} 1"));
}
