#include "agent/run/agent.h"

#include <catch2/generators/catch_generators.hpp>
#include <nlohmann/json.hpp>

#include "tests/unit/agent/working_agent.h"
#include "tests/unit/support/heard.h"
#include "tests/unit/webhook/fake_poster.h"

using namespace evalcar;
using evalcar::test::must;
using evalcar::testing::Working;
using std::chrono::seconds;
using enum evalcar::state::EvaluationState;

namespace {

/// The data of mmmu_val, a task of every second checkpoint, are missing.
struct WithoutMmmu : Working {
  WithoutMmmu() {
    settings.evaluate.tasks = {"docvqa_val", "mmmu_val"};
    settings.evaluate.task_every_nth = {{"mmmu_val", 2}};
    settings.limits.retry_delay = seconds(100);
    at_mmmu_load = [this](const auto&) { say_error(std::string(protocol::kData), false); };
    for (const std::int64_t step : {5, 10, 15}) save(step);
  }
};

/// Results go to a receiver in memory.
struct Posted : Working {
  test::Receiver receiver;

  Posted() {
    settings.publish.webhook_url = "http://127.0.0.1/hook";
    settings.limits.attempts = 1;
    around.make_poster = [this]() -> Result<std::unique_ptr<webhook::Poster>> {
      return std::unique_ptr<webhook::Poster>(std::make_unique<test::FakePoster>(receiver));
    };
    begin({.once = true});
  }
  void end() { agent.reset(); }
  /// The clock stands still meanwhile: nobody's patience ends.
  bool ends() {
    return test::comes_true([this] {
      turn(seconds(0));
      return agent->finished().has_value();
    });
  }
  std::vector<std::int64_t> steps() {
    std::vector<std::int64_t> posted;
    for (const std::string& body : receiver.book.with([](auto& book) { return book.bodies; })) {
      posted.push_back(nlohmann::json::parse(body)["global_step"].get<std::int64_t>());
    }
    return posted;
  }
};

}  // namespace

TEST_CASE("a seldom task without its data keeps no older checkpoint of the others waiting") {
  WithoutMmmu w;
  w.begin();
  w.turns(20);  // less than any pause after a fault

  const auto states = w.states();
  for (const char* const step : {"5", "10", "15"}) {
    INFO(step);
    CHECK(states.at(std::string(step) + " docvqa_val") == kPublished);
  }
  CHECK(states.at("15 mmmu_val") == kLeased);
  CHECK(states.at("5 mmmu_val") == kLeased);
  CHECK_FALSE(w.agent->finished().has_value());

  w.at_mmmu_load = nullptr;
  w.turns(600);
  CHECK(w.states().at("15 mmmu_val") == kPublished);
  CHECK(w.states().at("5 mmmu_val") == kPublished);
}

TEST_CASE("run --once measures all else before it ends for a task without its data") {
  WithoutMmmu w;
  w.begin({.once = true});
  w.turns(100);

  const auto states = w.states();
  for (const char* const step : {"5", "10", "15"}) {
    INFO(step);
    CHECK(states.at(std::string(step) + " docvqa_val") == kPublished);
  }
  CHECK(states.at("15 mmmu_val") == kLeased);
  CHECK(states.at("5 mmmu_val") == kLeased);
  CHECK(w.agent->finished() == run::kFailed);
}

TEST_CASE("a newer checkpoint that fails each time does not keep an older one from its result") {
  Working w;
  w.settings.evaluate.preempt = true;
  w.settings.limits.attempts = 100;
  w.save(5);
  bool first = true;
  w.at_load[10] = [&w](const auto&) { w.say_error("internal", true); };
  w.at_evaluate = [&] {
    if (first) w.say_interim();
    first = false;
  };
  w.begin();
  w.turns(6);
  REQUIRE(w.loads_of(5) == 1);

  w.save(10);
  w.turns(6);
  CHECK(w.loads_of(10) == 1);  // it went first
  CHECK(w.loads_of(5) == 2);
  w.turns(200);  // more than its pauses

  CHECK(w.loads_of(10) == 1);
  CHECK(w.loads_of(5) == 2);
  w.say_result();
  w.turns(3);
  CHECK(w.states().at("5 docvqa_val") == kPublished);
}

TEST_CASE("under latest, an old folder of a higher step that waits for a try gives nothing up") {
  Working w;
  w.settings.evaluate.policy = config::Policy::kLatest;
  w.settings.limits.retry_delay = seconds(10'000);
  w.at_load[1000] = [&w](const auto&) { w.say_error("internal", true); };
  w.save(1000, 'z');
  w.clock.advance(seconds(60));
  w.begin();
  w.turns(10);
  REQUIRE(w.states().at("1000 docvqa_val") == state::EvaluationState::kFailed);

  for (const std::int64_t step : {100, 200}) {
    w.save(step);
    w.turns(10);
    CHECK(w.states().at(std::to_string(step) + " docvqa_val") ==
          state::EvaluationState::kPublished);
  }

  CHECK(w.states().at("1000 docvqa_val") == state::EvaluationState::kFailed);
}

TEST_CASE("a configuration that contradicts the best metric's own direction is told of once") {
  const bool contradicts = GENERATE(false, true);
  Working w;
  w.settings.publish.metric_for_best_model = "eval/docvqa_val/anls";
  w.settings.publish.greater_is_better = !contradicts;
  for (const std::int64_t step : {5, 10}) w.save(step);
  const test::Heard heard;
  w.begin();
  w.turns(40);
  REQUIRE(w.states().at("10 docvqa_val") == kPublished);

  const std::string text = heard.text();
  const auto told =
      text.find("warning publish.greater_is_better = false, but of eval/docvqa_val/anls ");
  CHECK((told != std::string::npos) == contradicts);
  CHECK((!contradicts || text.find("publish.greater_is_better", told + 60) == std::string::npos));
}

TEST_CASE("an evaluator that no signal ends is in status.json, and keeps no run from its end") {
  for (const bool once : {true, false}) {
    INFO(once);
    Working w;
    w.settings.limits.stage_timeouts["loading"] = seconds(60);
    for (const std::int64_t step : {5, 10}) w.save(step);
    w.at_load[10] = [&w](const auto&) { w.script.lingers = true; };  // and says nothing any more
    w.begin({.once = once});
    w.turns(200);

    CHECK_FALSE(w.agent->finished().has_value());
    const auto told = nlohmann::json::parse(w.files.content("/out/_evalcar/status.json").value());
    const auto warning = told["agent"]["warning"].get<std::string>();
    CHECK(warning.find("process 4711 was killed") != std::string::npos);
    w.turns(400);
    CHECK(w.states().at("5 docvqa_val") == kLeased);
    CHECK(w.states().at("10 docvqa_val") == kFailed);  // once; its next try waits
    CHECK(w.script.starts == 1);
    CHECK(w.agent->finished() == (once ? std::optional<int>(run::kFailed) : std::nullopt));
    if (once) continue;

    w.script.lingers = false;
    w.at_load.clear();
    w.turns(400);  // more than its pauses
    CHECK(w.states().at("5 docvqa_val") == kPublished);
    CHECK(w.states().at("10 docvqa_val") == kPublished);
  }
}

TEST_CASE("status.json tells an orderly end with its exit code, and none where another goes on") {
  Working w;
  w.settings.publish.keep_best = 2;
  w.settings.publish.metric_for_best_model = "eval/mmmu_val/mmmu_acc";
  w.save(5);
  w.begin();
  w.turns(10);
  const auto agent = [&w] {
    const auto text = must(read_file(w.files, "/out/_evalcar/status.json", 1U << 20U));
    return nlohmann::json::parse(text)["agent"];
  };
  CHECK(agent()["state"] == "running");
  CHECK(agent()["keep_best"] == 2);
  CHECK(agent()["metric_for_best_model"] == "eval/mmmu_val/mmmu_acc");

  w.agent->hand_over();
  CHECK(agent()["state"] == "running");
  w.agent.reset();
  w.begin();
  w.turns(3);
  const int code = w.agent->stop();

  CHECK(agent()["state"] == "ended");
  CHECK(agent()["exit_code"] == code);
}

TEST_CASE("run --once gives a slow receiver the time to take what is left") {
  Posted p;
  p.receiver.hangs = true;
  p.save(5);
  p.turns(15);
  REQUIRE(p.states().at("5 docvqa_val") == kPublished);
  CHECK_FALSE(p.agent->finished().has_value());

  p.receiver.hangs = false;

  REQUIRE(p.ends());
  CHECK(p.agent->finished() == run::kDone);
  CHECK(p.steps() == std::vector<std::int64_t>{5});
}

TEST_CASE("a receiver that never answers keeps no run from its end, and gets the rest after it") {
  Posted p;
  p.receiver.hangs = true;
  p.save(5);
  p.turns(60);
  CHECK(p.agent->finished() == run::kDone);
  CHECK(p.steps().empty());
  p.end();
  p.receiver.hangs = false;
  p.save(10);

  p.begin({.once = true});

  REQUIRE(p.ends());
  CHECK(p.steps() == std::vector<std::int64_t>{5, 10});
}

TEST_CASE("a receiver that fails again and again keeps no run from its end") {
  Posted p;
  for (int i = 0; i < 1000; ++i) p.receiver.answer(webhook::Answer{.status = 500});
  p.save(5);
  CHECK(p.ends());
}

TEST_CASE("what a lost database learns again from the files is not posted again") {
  Posted p;
  p.save(5);
  REQUIRE(p.ends());
  p.end();
  const std::string before = p.settings.store.path;
  p.settings.store.path = p.folder / "new.db";
  p.files.put_file(p.settings.store.path + ".webhook.json",
                   must(read_file(p.files, before + ".webhook.json", 4096)));
  p.save(10);

  p.begin({.once = true});

  REQUIRE(p.ends());
  CHECK(p.states().at("5 docvqa_val") == kPublished);
  CHECK(p.steps() == std::vector<std::int64_t>{5, 10});
}

TEST_CASE("an agent whose device stays away ends an hour after training, and not before its end") {
  const bool is_repaired = GENERATE(false, true);
  INFO((is_repaired ? "the device comes back" : "the device stays away"));
  Working w;
  w.settings.watch.exit_marker = "DONE";
  w.save(5);
  w.at_load[5] = [&w](const auto&) { w.say_error(std::string(protocol::kDeviceLost), false); };
  w.begin();
  for (int i = 0; i < 400; ++i) w.turn(seconds(60));
  CHECK_FALSE(w.agent->finished().has_value());

  w.files.put_file("/out/DONE", "");
  for (int i = 0; i < 50; ++i) w.turn(seconds(60));
  CHECK_FALSE(w.agent->finished().has_value());
  if (is_repaired) w.at_load.clear();
  for (int i = 0; i < 120 && !w.agent->finished().has_value(); ++i) w.turn(seconds(60));

  CHECK(w.agent->finished() == (is_repaired ? 0 : run::kFailed));
  CHECK(w.states().at("5 docvqa_val") == (is_repaired ? kPublished : kLeased));
}

TEST_CASE("what stands in the way is told from when it is met until weights load again") {
  const bool while_loading = GENERATE(false, true);
  INFO((while_loading ? "met while loading" : "met while evaluating"));
  Working w;
  w.settings.limits.retry_delay = seconds(60);
  const auto fail = [&w] { w.say_error(std::string(protocol::kDeviceLost), false); };
  if (while_loading) {
    w.at_load[5] = [fail](const auto&) { fail(); };
  } else {
    w.at_evaluate = fail;
  }
  w.save(5);
  w.begin();
  w.turns(10);
  REQUIRE(w.states().at("5 docvqa_val") == kLeased);

  CHECK(w.agent->hindrance().starts_with("nothing can be evaluated: "));
  w.at_load.clear();
  w.at_evaluate = [] {};
  w.turns(120);

  CHECK(w.agent->hindrance().empty());  // it is being evaluated
  w.say_result();
  w.turns(3);
  CHECK(w.states().at("5 docvqa_val") == kPublished);
}

TEST_CASE("the hours of an evaluation are none in which nothing was measured") {
  Working w;
  w.settings.watch.exit_marker = "DONE";
  w.settings.limits.stage_timeouts["stuck"] = std::chrono::hours(24);
  w.settings.limits.stage_timeouts["heartbeat"] = std::chrono::hours(24);
  w.save(5);
  w.at_evaluate = [] {};
  w.begin();
  w.turns(5);
  w.files.put_file("/out/DONE", "");
  for (int i = 0; i < 180; ++i) w.turn(seconds(60));
  REQUIRE_FALSE(w.agent->finished().has_value());

  w.at_evaluate = [&w] { w.say_result(); };
  w.say_error(std::string(protocol::kDeviceLost), false);
  for (int i = 0; i < 20 && !w.agent->finished().has_value(); ++i) w.turn(seconds(60));

  CHECK(w.agent->finished() == 0);
  CHECK(w.states().at("5 docvqa_val") == kPublished);
}
