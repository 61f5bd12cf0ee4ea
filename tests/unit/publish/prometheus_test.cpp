#include "agent/publish/prometheus.h"

#include <catch2/catch_test_macros.hpp>

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

  const std::string text = must(publish::prometheus_text({{&s.store->read()}}, s.clock));

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

TEST_CASE("Prometheus' labels are escaped, and an agent tells its work") {
  test::Scenario s;
  publish::AgentFacts agent;
  agent.version = "1\"2\\3\n4";
  agent.uptime_s = 12.5;
  agent.warning = "slow";
  agent.current = {1, 500, "ema", {"evaluating", "docvqa_val", 25, 100, 2.0, 37.5}};
  const std::string text = must(publish::prometheus_text({{&s.store->read(), agent}}, s.clock));
  CHECK(has_line(text, R"(evalcar_build_info{version="1\"2\\3\n4",device=""} 1)"));
  CHECK(has_line(text, "evalcar_agent_uptime_seconds 12.5"));
  CHECK(has_line(text, "evalcar_agent_warning 1"));
  const std::string now = R"({checkpoint_type="ema",stage="evaluating"})";
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

  const std::string text = must(publish::prometheus_text(
      {{&first.store->read(), one}, {&second.store->read(), other}}, first.clock));

  const auto count = [&text](const std::string& part) {
    std::size_t found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  CHECK(count("# TYPE evalcar_evaluations gauge") == 1);
  CHECK(count("\nevalcar_evaluations{") == 24);
  CHECK(count("evalcar_agent_running 1") == 1);
  CHECK(has_line(text, "evalcar_agent_warning 1"));
  CHECK(count("\nevalcar_current_step{") == 1);
  const auto begin = text.find("\nevalcar_evaluations{");
  const auto end = text.rfind("\nevalcar_evaluations{");
  CHECK(text.substr(begin, end - begin).find('#') == std::string::npos);  // they stand together
}
