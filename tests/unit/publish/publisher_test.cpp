#include "agent/publish/publisher.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>

#include "agent/publish/best.h"
#include "agent/publish/event_file.h"
#include "agent/publish/metrics_line.h"
#include "agent/publish/status.h"
#include "tests/unit/publish/desk.h"
#include "tests/unit/publish/requested.h"

using namespace evalcar;
using namespace evalcar::publish;
using nlohmann::json;
using test::Desk;
using test::kDir;
using test::kLog;
using test::must;
using enum state::EvaluationState;

TEST_CASE("a scored evaluation becomes a line, results files, an event and the best") {
  Desk d;
  const std::int64_t id = d.scored(500, 0.712);

  const Published published = must(d.publisher->publish(id, 40));

  CHECK(published.seq == 1);
  CHECK(published.is_best);
  CHECK_FALSE(published.line_was_there);
  CHECK(d.s.state_of(id) == kPublished);
  REQUIRE(d.lines().size() == 1);
  const json line = d.lines()[0];
  CHECK(line["seq"] == 1);
  CHECK(line["run"] == "run-01234567-1");
  CHECK(line["global_step"] == 500);
  CHECK(line["checkpoint"] == "checkpoint-500");
  CHECK(line["checkpoint_type"] == "regular");
  CHECK(line["weights_sha256"] == "w500regular");
  CHECK(line["settings_sha256"] == d.s.get(id).settings_sha256);
  CHECK(line["final"] == true);
  CHECK(line["metrics"] ==
        json({{"eval/docvqa_val/anls", 0.712}, {"eval/docvqa_val/anls_stderr", 0.25}}));
  CHECK(line["samples"] == 2);
  CHECK(line["seconds"] == 12.5);
  CHECK(line["lag_steps"] == 40);
  CHECK(line["time"].get<std::string>().ends_with("Z"));
  CHECK_FALSE(line.contains("supersedes"));
  CHECK(d.files.tree(kDir) ==
        std::vector<std::string>{
            "best.json", "metrics.jsonl", "results/", "results/500/", "results/500/regular/",
            "results/500/regular/run__checkpoint-500/",
            "results/500/regular/run__checkpoint-500/20261121_090001_results.json",
            "results/500/regular/run__checkpoint-500/20261121_090001_samples_docvqa_val.jsonl",
            "results/500/regular/run__checkpoint-500/20261121_090001_table.md", "tensorboard/",
            "tensorboard/events.out.tfevents.1.evalcar"});
  CHECK(std::string(kDir) + "/" + line["results"].get<std::string>() == published.results_file);
  CHECK(d.file("best.json") ==
        json::parse(R"({"metric":"eval/docvqa_val/anls","greater_is_better":true,"best":
          {"regular":{"step":500,"value":0.712,"checkpoint":"checkpoint-500","kept_path":null,
                      "weights_sha256":"w500regular"}}})"));
}

TEST_CASE("a result of several attempts has a speed only where the last one gave all answers") {
  const bool answered = GENERATE(false, true);
  Desk d;
  const std::int64_t id = d.s.plan(500).id;
  d.s.bring(id, answered ? kEvaluating : kLoading, "w500");
  if (answered) {
    must(d.s.store->recover());  // a kill while it evaluated
  } else {
    must(d.s.store->fail_attempt(id, {"loading", "device_busy", "busy"}, "", false));
  }
  must(d.s.store->begin_attempt(id, "cpu"));
  must(d.s.store->record_loaded(id, "w500", "float32"));
  protocol::EvaluationResult result;
  result.weights_sha256 = "w500";
  result.seconds = 12.5;
  result.tasks = {test::anls_result("docvqa_val", 0.5)};
  must(d.s.store->record_result(id, result));

  const std::string path = must(d.publisher->publish(id, 0)).results_file;

  const json file = json::parse(*d.files.content(path));
  CHECK(file["throughput"].contains("avg_speed") == !answered);
}

TEST_CASE("EMA and averages have series of their own") {
  Desk d;
  must(d.publisher->publish(d.scored(1, 0.5), std::nullopt));
  must(d.publisher->publish(d.scored(1, 0.75, "ema"), std::nullopt));
  must(d.publisher->publish(d.scored(1, 0.25, "average"), std::nullopt));

  const auto lines = d.lines();
  REQUIRE(lines.size() == 3);
  CHECK(lines[1]["metrics"].contains("eval_ema/docvqa_val/anls"));
  CHECK(lines[1]["checkpoint_type"] == "ema");
  CHECK(lines[1]["lag_steps"].is_null());
  CHECK(lines[2]["metrics"].contains("eval_avg/docvqa_val/anls"));
  CHECK(d.file("best.json")["best"]["ema"]["value"] == 0.75);
  CHECK(d.file("best.json")["best"]["regular"]["value"] == 0.5);
}

TEST_CASE("a kill at any call of a publication is healed at the next start, with one line") {
  std::size_t calls = 0;
  {
    Desk d;
    const std::int64_t id = d.scored(500, 0.712);
    d.files.reset_calls();
    must(d.publisher->publish(id, 40));
    calls = d.files.calls().size();
  }
  REQUIRE(calls > 20);
  for (const bool power : {false, true}) {
    for (std::size_t n = 1; n <= calls; ++n) {
      Desk d;
      d.files.sync_all();
      const std::int64_t id = d.scored(500, 0.712);
      d.files.die_at_call(n);
      (void)d.publisher->publish(id, 40);
      if (!power) d.files.sync_all();
      d.files.power_cut();

      d.reopen();
      d.s.clock.advance(std::chrono::hours{1});  // the line keeps its own time
      must(d.publisher->publish_pending(d.s.run.id, 99));

      INFO("killed at call " << n << (power ? " with the power" : ""));
      CHECK(d.s.state_of(id) == kPublished);
      const auto lines = d.lines();
      // Cut with the power after `published` was committed cannot lose the line: it was synced.
      REQUIRE(lines.size() == 1);
      CHECK(lines[0]["seq"] == 1);
      CHECK(d.file("best.json")["best"]["regular"]["step"] == 500);
      const auto records = read_records(
          d.files.content(std::string(kDir) + "/tensorboard/events.out.tfevents.1.evalcar")
              .value());
      CHECK(records.data.size() == 2);
      std::size_t results = 0;
      for (const std::string& path : d.files.tree(kDir)) {
        if (path.ends_with("_results.json")) ++results;
      }
      CHECK(results == 1);
    }
  }
}

TEST_CASE("a failing disk leaves the evaluation scored, and a later try publishes it once") {
  std::size_t calls = 0;
  {
    Desk d;
    const std::int64_t id = d.scored(500, 0.712);
    d.files.reset_calls();
    must(d.publisher->publish(id, 40));
    calls = d.files.calls().size();
  }
  for (std::size_t n = 1; n <= calls; ++n) {
    Desk d;
    const std::int64_t id = d.scored(500, 0.712);
    d.files.fail_call(n, ENOSPC);
    const auto failed = d.publisher->publish(id, 40);
    if (!failed.has_value()) CHECK(failed.error().retryable);
    d.files.fail_call(0, 0);

    must(d.publisher->publish_pending(d.s.run.id, 40));

    INFO("failed at call " << n);
    CHECK(d.s.state_of(id) == kPublished);
    CHECK(d.lines().size() == 1);
    for (const std::string& path : d.files.tree(kDir)) {
      CHECK(path.find(".tmp.") == std::string::npos);
    }
  }
}

TEST_CASE("seq rises in the file when a line could not be written and others come after it") {
  Desk d;
  std::size_t failures = 2;  // of the disk, one at each line's first tries
  d.files.on_call([&](const test::Call& call) {
    if (call.operation != "append" || call.path != kLog || failures == 0) return;
    --failures;
    d.files.fail_call(1, ENOSPC);
  });
  const std::int64_t late = d.scored(500, 0.5);
  const std::int64_t early = d.scored(400, 0.4);
  REQUIRE_FALSE(d.publisher->publish(late, 0).has_value());  // has seq 1, and no line
  REQUIRE_FALSE(d.publisher->publish(early, 0).has_value());
  CHECK(d.lines().empty());
  d.reopen();
  SECTION("the others wait for it") { must(d.publisher->publish(early, 0)); }
  SECTION("what is pending goes by seq, not by step") {
    CHECK(must(d.publisher->publish_pending(d.s.run.id, 0)) == 2);
  }
  must(d.publisher->publish_pending(d.s.run.id, 0));

  REQUIRE(d.lines().size() == 2);
  CHECK(d.lines()[0]["seq"] == 1);
  CHECK(d.lines()[0]["global_step"] == 500);
  CHECK(d.lines()[1]["seq"] == 2);
  CHECK(d.lines()[1]["global_step"] == 400);
  CHECK(d.s.state_of(late) == kPublished);
  CHECK(d.s.state_of(early) == kPublished);
}

TEST_CASE("a database that was lost and made anew recognises its lines in the file") {
  Desk d;
  must(d.publisher->publish(d.scored(500, 0.712), 40));
  must(d.publisher->publish(d.scored(550, 0.7), 40));
  const auto before = d.files.content(kLog);
  Desk fresh;                           // an empty database …
  fresh.files.put_file(kLog, *before);  // … beside the old file
  const std::int64_t id = fresh.scored(500, 0.712);

  const Published published = must(fresh.publisher->publish(id, 40));

  CHECK(published.line_was_there);
  CHECK(published.seq == d.lines()[0]["seq"]);
  CHECK(fresh.files.content(kLog) == before);
  must(fresh.publisher->publish(fresh.scored(600, 0.8), 0));
  CHECK(fresh.lines().size() == 3);
  CHECK(fresh.lines()[2]["seq"] == 3);
}

TEST_CASE("a rewritten checkpoint's new line names the one that it replaces") {
  Desk d;
  must(d.publisher->publish(d.scored(500, 0.5), 0));
  const auto again =
      must(d.s.store->observe_checkpoint(d.s.run.id, test::Scenario::seen(500, "rewritten")));
  const std::int64_t id = d.s.plan_for(again.checkpoint.id).id;
  d.s.bring(id, kScored, "other", 0.25);
  must(d.publisher->publish(id, 0));

  REQUIRE(d.lines().size() == 2);
  CHECK(d.lines()[1]["supersedes"] == 1);
  CHECK(d.lines()[1]["seq"] == 2);
  // The best follows the number that stands now.
  CHECK(d.file("best.json")["best"]["regular"]["value"] == 0.25);
}

TEST_CASE("weights that come back after others have a line of their own, which is the last") {
  Desk d;
  must(d.publisher->publish(d.rewritten(500, "a", "A", 0.5), 0));
  must(d.publisher->publish(d.rewritten(500, "b", "B", 0.75), 0));
  const std::int64_t back = d.rewritten(500, "a again", "A", 0.5);
  const Published published = must(d.publisher->publish(back, 0));

  CHECK_FALSE(published.line_was_there);
  CHECK(published.is_best);
  REQUIRE(d.lines().size() == 3);
  CHECK(d.lines()[2]["seq"] == 3);
  CHECK(d.lines()[2]["supersedes"] == 2);
  CHECK(d.lines()[2]["weights_sha256"] == "A");
  CHECK(d.lines()[2]["metrics"] == d.lines()[0]["metrics"]);
  CHECK(d.file("best.json")["best"]["regular"]["value"] == 0.5);
  CHECK(d.file("best.json")["best"]["regular"]["weights_sha256"] == "A");
  std::set<nlohmann::json> results;
  for (const nlohmann::json& line : d.lines()) results.insert(line["results"]);
  CHECK(results.size() == 3);
  // Deleted lines and files come back, each as itself.
  const auto text = d.files.content(kLog);
  must(d.files.remove_file(kLog));
  d.reopen();
  must(d.publisher->publish_pending(d.s.run.id, 0));
  CHECK(d.files.content(kLog) == text);
}

TEST_CASE("the best names no folder that was written anew since it was measured") {
  Desk d;
  must(d.publisher->publish(d.rewritten(500, "a", "A", 0.5), 0));
  CHECK(d.file("best.json")["best"]["regular"]["checkpoint"] == "checkpoint-500");

  // Whatever it holds now, it has no number.
  must(d.s.store->observe_checkpoint(d.s.run.id, test::Scenario::seen(500, "b")));
  must(d.publisher->write_best(d.s.run.id));

  const json best = d.file("best.json")["best"]["regular"];
  CHECK(best["value"] == 0.5);
  CHECK(best["weights_sha256"] == "A");
  CHECK(best["checkpoint"].is_null());
}

TEST_CASE("what was scored before of a step is published before it") {
  Desk d;
  const std::int64_t first = d.rewritten(500, "a", "A", 0.5);  // its publication failed
  const std::int64_t second = d.rewritten(500, "b", "B", 0.75);
  must(d.publisher->publish(second, 0));

  REQUIRE(d.lines().size() == 2);
  CHECK(d.lines()[0]["weights_sha256"] == "A");
  CHECK(d.lines()[1]["weights_sha256"] == "B");
  CHECK(d.lines()[1]["supersedes"] == 1);
  CHECK(d.s.state_of(first) == kPublished);
  CHECK(must(d.publisher->publish_pending(d.s.run.id, 0)) == 0);
}

TEST_CASE("two short evaluations of one second have files of their own") {
  Desk d;
  const std::int64_t first = d.s.plan(500, {"docvqa_val"}).id;
  const std::int64_t second = d.s.plan(500, {"mmmu_val"}).id;
  d.s.bring(first, kScored, "w", 0.5);
  d.s.clock.advance(-std::chrono::seconds{1});
  d.s.bring(second, kScored, "w", 0.5);
  REQUIRE(d.s.get(first).finished_at == d.s.get(second).finished_at);
  const Published a = must(d.publisher->publish(first, 0));
  const Published b = must(d.publisher->publish(second, 0));
  CHECK(a.results_file != b.results_file);
}

TEST_CASE("what could not be computed is missing with its reason, never zero") {
  Desk d;
  const std::int64_t id = d.s.plan(1, {"docvqa_val", "mmmu_val"}).id;
  d.s.bring(id, kEvaluating, "w");
  protocol::EvaluationResult result;
  result.weights_sha256 = "w";
  result.tasks = {test::anls_result("docvqa_val", 0.5)};
  result.tasks[0].metrics.push_back(
      {"judge", "none", std::nullopt, std::nullopt, "", "no key", true});
  result.tasks[0].metrics.push_back({"acc", "none", 0.5, 0.125, "bootstrap", "", true});
  protocol::TaskResult broken;
  broken.task = "mmmu_val";
  broken.error = "no data";
  result.tasks.push_back(broken);
  must(d.s.store->record_result(id, result));
  must(d.publisher->publish(id, 0));

  const json line = d.lines().at(0);
  CHECK(line["missing"] ==
        json({{"eval/docvqa_val/judge", "no key"}, {"eval/mmmu_val", "no data"}}));
  CHECK_FALSE(line["metrics"].contains("eval/docvqa_val/judge"));
  CHECK(line["stderr_source"] == json({{"eval/docvqa_val/acc_stderr", "bootstrap"}}));
}

TEST_CASE("aliases are accepted for the best metric and logged when wanted") {
  Desk d;
  d.options.aliases = [](const std::string&, const std::string& metric) {
    return metric == "anls" ? std::vector<std::string>{"similarity"} : std::vector<std::string>{};
  };
  d.options.metric_for_best_model = "eval/docvqa_val/similarity";
  d.options.publish_aliases = true;
  d.reopen();
  must(d.publisher->publish(d.scored(1, 0.5), 0));

  CHECK(d.lines()[0]["metrics"]["eval/docvqa_val/similarity"] == 0.5);
  CHECK(d.lines()[0]["metrics"]["eval/docvqa_val/anls"] == 0.5);
  CHECK(d.file("best.json")["best"]["regular"]["step"] == 1);
}

TEST_CASE("the best is the first of equals, follows the direction, and knows where it is kept") {
  Desk d;
  d.options.greater_is_better = false;
  d.reopen();
  const std::int64_t first = d.scored(1, 0.5);
  must(d.publisher->publish(first, 0));
  CHECK_FALSE(must(d.publisher->publish(d.scored(2, 0.75), 0)).is_best);
  CHECK_FALSE(must(d.publisher->publish(d.scored(3, 0.5), 0)).is_best);
  CHECK(must(d.publisher->best_evaluation(d.s.run.id, "regular")) == first);
  CHECK_FALSE(must(d.publisher->best_evaluation(d.s.run.id, "ema")).has_value());

  must(d.s.store->set_kept_path(d.s.get(first).checkpoint_id, "regular", "/kept/1"));
  must(d.publisher->write_best(d.s.run.id));
  CHECK(d.file("best.json")["best"]["regular"]["kept_path"] == "/kept/1");
  CHECK(d.file("best.json")["greater_is_better"] == false);
}

TEST_CASE("the best are ranked by what stands now: of equals the lower step, each kind its own") {
  Desk d;
  const std::int64_t first = d.scored(1, 0.5);
  const std::int64_t second = d.scored(2, 0.75);
  const std::int64_t third = d.scored(3, 0.5);
  const std::int64_t ema = d.scored(3, 0.25, "ema");
  const auto best = [&d](const std::string& kind, std::size_t count) {
    return must(best_evaluations(d.s.store->read(), d.options, d.s.run.id, kind, count));
  };
  CHECK(best("regular", 5) == std::vector<std::int64_t>{second, first, third});
  CHECK(best("regular", 2) == std::vector<std::int64_t>{second, first});
  CHECK(best("ema", 2) == std::vector<std::int64_t>{ema});
  d.options.greater_is_better = false;
  CHECK(best("regular", 2) == std::vector<std::int64_t>{first, third});
  d.options.metric_for_best_model = "eval/docvqa_val/no_such_metric";
  CHECK(best("regular", 2).empty());
}

TEST_CASE("the best is ranked among numbers of the configured settings alone") {
  Desk d;
  d.s.configure();
  must(d.publisher->publish(d.scored(1, 0.9), std::nullopt));
  must(d.publisher->publish(d.scored(2, 0.8), std::nullopt));
  d.s.configure(4);
  const auto best = [&d] { return d.file("best.json")["best"]; };

  must(d.publisher->publish_pending(d.s.run.id, std::nullopt));
  CHECK(best() == json::object());  // what the file said before is of other settings

  const std::int64_t limited = d.s.plan_limited(3, 4).id;
  d.s.bring(limited, kScored, "w3", 0.1);
  CHECK(must(d.publisher->publish(limited, std::nullopt)).is_best);
  CHECK(best()["regular"]["step"] == 3);

  d.s.configure();
  must(d.publisher->publish_pending(d.s.run.id, std::nullopt));
  CHECK(best()["regular"]["step"] == 1);
}

TEST_CASE("weights to be kept are those of the configured settings first, then the latest others") {
  Desk d;
  const auto measured = [&d](std::int64_t step, double limit, double value) {
    d.s.configure(limit);
    const std::int64_t id = d.s.plan_limited(step, limit).id;
    d.s.bring(id, kScored, "w" + std::to_string(step), value);
    return id;
  };
  const std::int64_t first = measured(1, 1, 0.9);
  const std::int64_t second = measured(2, 2, 0.5);
  const std::int64_t better = measured(3, 2, 0.7);
  const std::int64_t now = measured(4, 3, 0.1);

  CHECK(must(best_evaluations(d.s.store->read(), d.options, d.s.run.id, "regular", 9)) ==
        std::vector<std::int64_t>{now, better, second, first});
  CHECK(must(best_evaluation(d.s.store->read(), d.options, d.s.run.id, "regular")) == now);
}

TEST_CASE("nothing is created before the first publication") {
  Desk d;
  d.s.plan(1);
  CHECK(must(d.publisher->publish_pending(d.s.run.id, 0)) == 0);
  CHECK(d.files.tree("/out/run").empty());
  CHECK(d.publisher->publish(1, 0).error().code == ErrorCode::kInvalidArgument);
}

TEST_CASE("status tells every evaluation, the agent and how far it is behind") {
  Desk d;
  must(d.publisher->publish(d.scored(500, 0.5), 0));
  const std::int64_t running = d.s.plan(1000).id;
  d.s.bring(running, kEvaluating);
  must(d.s.store->record_progress(running, "evaluating", 42, 100));
  d.s.plan(1040);
  AgentFacts agent;
  agent.pid = 77;
  agent.version = "0.1.0";
  agent.uptime_s = 3.5;
  agent.warning = "no GPU seen, running on the CPU";
  agent.busy = true;
  StatusRows rows;
  must(write_status(d.files, d.s.store->read(), d.s.clock, std::string(kDir) + "/status.json",
                    d.s.run.id, agent, rows));

  const json status = d.file("status.json");
  CHECK(status["agent"]["busy"] == true);
  CHECK(status["agent"]["pid"] == 77);
  CHECK(status["agent"]["state"] == "running");
  CHECK_FALSE(status["agent"].contains("exit_code"));
  CHECK(status["agent"]["uptime_s"] == 3.5);
  CHECK(status["agent"]["warning"] == "no GPU seen, running on the CPU");
  REQUIRE(status["evaluations"].size() == 3);
  CHECK(status["evaluations"][0]["state"] == "published");
  CHECK(status["evaluations"][0]["progress"] == 1.0);
  CHECK(status["evaluations"][1]["step"] == 1000);
  CHECK(status["evaluations"][1]["checkpoint_type"] == "regular");
  CHECK(status["evaluations"][1]["progress"] == 0.42);
  CHECK(status["evaluations"][1]["reason"].is_null());
  CHECK(status["lag_steps"] == 540);
  CHECK(status["time"].get<std::string>().ends_with("Z"));
  CHECK(json::parse(
            must(status_json(d.s.store->read(), d.s.clock, std::nullopt, std::nullopt)))["agent"]
            .is_null());
}

TEST_CASE("a status is of the rows as they are, of the run that is asked for, and of its time") {
  Desk d;
  const std::int64_t id = d.s.plan(5).id;
  StatusRows rows;
  const auto written = [&](std::optional<std::int64_t> run) {
    must(write_status(d.files, d.s.store->read(), d.s.clock, std::string(kDir) + "/status.json",
                      run, {}, rows));
    return d.file("status.json");
  };
  d.files.put_directory(kDir);
  const json first = written(d.s.run.id);
  REQUIRE(first["evaluations"].size() == 1);
  d.s.clock.advance(std::chrono::seconds{9});

  const json idle = written(d.s.run.id);
  CHECK(idle["evaluations"] == first["evaluations"]);
  CHECK(idle["time"] != first["time"]);
  CHECK(idle["lag_seconds"] == 9.0);
  CHECK(written(d.s.run.id + 1)["evaluations"].empty());
  d.s.bring(id, kLeased);
  CHECK(written(d.s.run.id)["evaluations"][0]["state"] == "leased");
  must(d.s.store->set_reason(id, "waits"));
  CHECK(written(d.s.run.id)["evaluations"][0]["reason"] == "waits");
}

TEST_CASE("the lag falls when checkpoints that nobody measures any more are deleted") {
  Desk d;
  must(d.publisher->publish(d.scored(500, 0.5), 0));
  const auto lag = [&] {
    return json::parse(
        must(status_json(d.s.store->read(), d.s.clock, d.s.run.id, std::nullopt)))["lag_steps"];
  };
  const state::Evaluation leased = d.s.plan(700);
  d.s.bring(leased.id, kLeased);
  const state::Evaluation lost = d.s.plan(1000);
  CHECK(lag() == 500);

  must(d.s.store->transition(lost.id, kLost, "removed"));
  CHECK(lag() == 500);  // the folder is there
  must(d.s.store->mark_checkpoint_gone(lost.checkpoint_id));
  CHECK(lag() == 200);
  must(d.s.store->mark_checkpoint_gone(leased.checkpoint_id));
  CHECK(lag() == 200);  // its lease waits
  must(d.s.store->transition(leased.id, kLost, "given up"));
  CHECK(lag() == 0);
}

TEST_CASE("the lag in seconds is the age of the oldest evaluation beyond the newest number") {
  Desk d;
  const auto lag = [&] {
    return json::parse(
        must(status_json(d.s.store->read(), d.s.clock, d.s.run.id, std::nullopt)))["lag_seconds"];
  };
  CHECK(lag().is_null());
  const std::int64_t backfill = d.s.plan(100).id;
  d.s.clock.advance(std::chrono::seconds(30));
  must(d.publisher->publish(d.scored(500, 0.5), 0));
  CHECK(d.s.get(backfill).state == kFound);
  CHECK(lag() == 0.0);  // what is filled in later is not what training is ahead of
  d.s.plan(600);
  d.s.clock.advance(std::chrono::seconds(20));
  d.s.plan(700);
  d.s.clock.advance(std::chrono::seconds(5));
  CHECK(lag() == 25.0);
}

TEST_CASE("what a job asked for neither catches up with training nor lags behind it") {
  Desk d;
  must(d.publisher->publish(d.scored(100, 0.5), 0));
  d.s.plan(200);
  d.s.clock.advance(std::chrono::seconds(20));
  const std::int64_t job = test::plan_requested(d.s, 200).id;
  const auto status = [&] {
    return json::parse(must(status_json(d.s.store->read(), d.s.clock, d.s.run.id, std::nullopt)));
  };
  d.s.bring(job, kScored, "w200");
  must(d.publisher->publish(job, 0));

  CHECK(status()["lag_steps"] == 100);
  CHECK(status()["lag_seconds"] == 21.0);  // a scenario's evaluation takes a second

  must(d.publisher->publish(d.scored(200, 0.5), 0));
  must(d.s.store->mark_checkpoint_gone(test::plan_requested(d.s, 300).checkpoint_id));
  d.s.clock.advance(std::chrono::seconds(20));
  CHECK(status()["lag_steps"] == 0);
  CHECK(status()["lag_seconds"] == 0.0);
}

TEST_CASE("a trainer that went back is compared with the numbers up to where it is") {
  Desk d;
  for (const std::int64_t step : {100, 500}) must(d.publisher->publish(d.scored(step, 0.5), 0));
  must(d.s.store->mark_checkpoint_gone(d.s.get(2).checkpoint_id));
  d.s.plan(150);

  const json status =
      json::parse(must(status_json(d.s.store->read(), d.s.clock, d.s.run.id, std::nullopt)));

  CHECK(status["lag_steps"] == 50);
}
