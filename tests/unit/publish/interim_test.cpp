// The score of a part is a line that says so, and nothing else: no best, no event, no number.
#include <catch2/catch_test_macros.hpp>

#include "agent/publish/event_file.h"
#include "agent/publish/metrics_line.h"
#include "agent/publish/recall.h"
#include "tests/unit/publish/desk.h"

using namespace evalcar;
using namespace evalcar::publish;
using nlohmann::json;
using test::Desk;
using test::kDir;
using test::kLog;
using test::must;
using enum state::EvaluationState;

namespace {

protocol::Interim interim_of(double fraction, std::int64_t n, double value,
                             const std::string& weights = "w1",
                             const std::vector<std::string>& tasks = {"docvqa_val"}) {
  protocol::Interim interim;
  interim.weights_sha256 = weights;
  interim.fraction = fraction;
  interim.seconds = 3;
  for (const std::string& task : tasks) {
    protocol::InterimScore score;
    score.task = task;
    score.fingerprint = "f1";
    score.n = n;
    score.documents = 200;
    score.metrics = {{"anls", "none", value, 0.25, "clustered", "", true}};
    score.notes = R"({"counted_as_misses":3,"flags":["odd"]})";
    interim.tasks.push_back(score);
  }
  return interim;
}

std::size_t events(const Desk& d) {
  const auto content =
      d.files.content(std::string(kDir) + "/tensorboard/events.out.tfevents.1.evalcar");
  return content.has_value() ? read_records(*content).data.size() - 1 : 0;
}

/// Of evaluation 500, which runs.
struct Running : Desk {
  std::int64_t id;
  Running() : id(s.plan(500).id) { s.bring(id, kEvaluating); }
  void end(double value) {
    protocol::EvaluationResult result;
    result.weights_sha256 = "w1";
    result.tasks = {test::anls_result("docvqa_val", value)};
    must(s.store->record_result(id, result));
    must(publisher->publish(id, 0));
  }
};

}  // namespace

TEST_CASE("an interim score is one line that is not final, with its interval") {
  Running d;

  CHECK(must(d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.5), 40)) == 1);

  REQUIRE(d.lines().size() == 1);
  const json line = d.lines()[0];
  CHECK(line["final"] == false);
  CHECK(line["fraction"] == 0.1);
  CHECK(line["global_step"] == 500);
  CHECK(line["checkpoint_type"] == "regular");
  CHECK(line["weights_sha256"] == "w1");
  CHECK(line["metrics"] ==
        json({{"eval/docvqa_val/anls", 0.5}, {"eval/docvqa_val/anls_stderr", 0.25}}));
  CHECK(line["intervals"]["eval/docvqa_val/anls"][0] == 0.5 - 1.96 * 0.25);
  CHECK(line["intervals"]["eval/docvqa_val/anls"][1] == 0.5 + 1.96 * 0.25);
  CHECK(line["stderr_source"]["eval/docvqa_val/anls_stderr"] == "clustered");
  CHECK(line["counted_as_misses"]["eval/docvqa_val"] == 3);
  CHECK(line["flags"]["eval/docvqa_val"] == json({"odd"}));
  CHECK(line["samples"] == 20);
  CHECK(line["settings_sha256"] == d.s.get(d.id).settings_sha256);
  CHECK(line["documents"] == 200);
  CHECK(line["lag_steps"] == 40);
  CHECK_FALSE(line.contains("supersedes"));
  CHECK_FALSE(line.contains("results"));
  CHECK(d.files.tree(kDir) == std::vector<std::string>{"metrics.jsonl"});
  CHECK(d.s.state_of(d.id) == kEvaluating);
  CHECK(must(d.s.store->read().metrics()).empty());
  CHECK_FALSE(must(d.publisher->best_evaluation(d.s.run.id, "regular")).has_value());
  must(d.publisher->write_best(d.s.run.id));
  CHECK_FALSE(d.files.content(std::string(kDir) + "/best.json").has_value());
}

TEST_CASE("the interval of a metric from 0 to 1 ends there, and of no spread there is none") {
  Running d;
  auto interim = interim_of(0.1, 20, 0.875);
  interim.tasks[0].metrics = {{"anls", "none", 0.875, 0.125, "", "", true},
                              {"exact_match", "none", 0.0625, 0.125, "", "", true},
                              {"sum_of_points", "none", 0.5, 0.5, "", "", true},
                              {"acc_norm", "none", 0.875, 0.125, "", "", true},
                              {"mmmu_acc", "none", 1.0, 0.0, "", "", true}};
  must(d.publisher->publish_interim(d.id, interim, 0));

  const json intervals = d.lines()[0]["intervals"];
  CHECK(intervals["eval/docvqa_val/anls"] == json({0.875 - 1.96 * 0.125, 1.0}));
  CHECK(intervals["eval/docvqa_val/acc_norm"] == json({0.875 - 1.96 * 0.125, 1.0}));
  CHECK(intervals["eval/docvqa_val/exact_match"] == json({0.0, 0.0625 + 1.96 * 0.125}));
  CHECK(intervals["eval/docvqa_val/sum_of_points"] == json({0.5 - 1.96 * 0.5, 0.5 + 1.96 * 0.5}));
  CHECK_FALSE(intervals.contains("eval/docvqa_val/mmmu_acc"));
}

TEST_CASE("each line takes the place of the one before it, and the result that of the last") {
  Running d;
  must(d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.5), 0));
  must(d.publisher->publish_interim(d.id, interim_of(0.3, 60, 0.6), 0));
  d.end(0.5);

  const auto lines = d.lines();
  REQUIRE(lines.size() == 3);
  CHECK(lines[1]["supersedes"] == 1);
  CHECK(lines[2]["supersedes"] == 2);
  CHECK(lines[2].value("supersedes_interim", 0) == 2);
  CHECK(lines[2]["final"] == true);
  CHECK(lines[2]["metrics"]["eval/docvqa_val/anls"] == 0.5);
  CHECK(events(d) == 1);
}

TEST_CASE("a result takes the place of an earlier result and of the interim scores since") {
  Running d;
  d.end(0.5);
  const std::int64_t other = d.s.plan(500, {"docvqa_val", "textvqa_val"}).id;
  d.s.bring(other, kEvaluating, "w1");
  const auto of_rest = interim_of(0.1, 20, 0.4, "w1", {"textvqa_val"});
  CHECK(must(d.publisher->publish_interim(other, of_rest, 0)) == 2);
  protocol::EvaluationResult result;
  result.weights_sha256 = "w1";
  result.tasks = {test::anls_result("docvqa_val", 0.5), test::anls_result("textvqa_val", 0.25)};
  must(d.s.store->record_result(other, result));
  must(d.publisher->publish(other, 0));

  const json line = d.lines().back();
  CHECK(line["supersedes"] == 1);
  CHECK(line.value("supersedes_interim", 0) == 2);
  CHECK(events(d) == 2);
}

TEST_CASE("the rest of a result in part takes the place of the interim scores of the rest") {
  Running d;
  d.id = d.s.plan(600, {"docvqa_val", "textvqa_val"}).id;
  d.s.bring(d.id, kEvaluating, "w1");
  must(d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.4), 0));
  protocol::EvaluationResult part;
  part.weights_sha256 = "w1";
  part.tasks = {test::anls_result("docvqa_val", 0.5),
                {.task = "textvqa_val", .error = "no data", .error_kind = "data"}};
  must(d.s.store->record_result(d.id, part));
  must(d.publisher->publish(d.id, 0));
  must(d.s.store->begin_completion(d.id, {{"textvqa_val", "v2"}}));
  must(d.s.store->mark_leased(d.id, "/out/run/_evalcar/leases/x"));
  must(d.s.store->begin_attempt(d.id, "cpu"));
  must(d.s.store->record_loaded(d.id, "w1", "float32"));
  const auto of_rest = interim_of(0.1, 20, 0.4, "w1", {"textvqa_val"});
  must(d.publisher->publish_interim(d.id, of_rest, 0));
  protocol::EvaluationResult rest;
  rest.weights_sha256 = "w1";
  rest.tasks = {test::anls_result("textvqa_val", 0.25)};
  must(d.s.store->record_result(d.id, rest));
  must(d.publisher->publish(d.id, 0));

  const auto lines = d.lines();
  REQUIRE(lines.size() == 4);
  CHECK(lines[1]["supersedes"] == 1);
  CHECK(lines[1].value("supersedes_interim", 0) == 1);
  CHECK(lines[3]["supersedes"] == 2);
  CHECK(lines[3].value("supersedes_interim", 0) == 3);
}

TEST_CASE("a result without any interim score before it names none") {
  Running d;
  d.end(0.5);
  CHECK_FALSE(d.lines().back().contains("supersedes_interim"));
}

TEST_CASE("a result that equals the interim score has its event all the same") {
  Running d;
  must(d.publisher->publish_interim(d.id, interim_of(0.3, 60, 0.5), 0));
  d.end(0.5);
  CHECK(events(d) == 1);
}

TEST_CASE("telling again, also after a kill, adds no line") {
  Running d;
  must(d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.5), 0));
  const auto text = d.files.content(kLog);

  CHECK(must(d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.5), 7)) == 1);
  d.reopen();
  CHECK(must(d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.5), 7)) == 1);

  CHECK(d.files.content(kLog) == text);
}

TEST_CASE("a corrected interim score is a line of its own that takes the wrong one's place") {
  Running d;
  must(d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.5), 0));
  const state::AttemptFailure fault{"evaluating", std::string(protocol::kDeviceFault), "700"};
  must(d.s.store->fail_attempt(d.id, fault, "", false));
  must(d.s.store->begin_attempt(d.id, "cpu"));
  must(d.s.store->record_loaded(d.id, "w1", "float32"));

  CHECK(must(d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.6), 0)) == 2);

  const auto lines = d.lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[1]["metrics"]["eval/docvqa_val/anls"] == 0.6);
  CHECK(lines[1]["supersedes"] == 1);
  CHECK(lines[1]["evaluation"] != lines[0]["evaluation"]);
}

TEST_CASE("a step that has its number is not told of in part again") {
  Running d;
  d.end(0.5);
  const std::int64_t other = d.s.plan(500, {"docvqa_val", "textvqa_val"}).id;
  d.s.bring(other, kEvaluating, "w1");

  CHECK_FALSE(must(d.publisher->publish_interim(other, interim_of(0.1, 20, 0.4), 0)).has_value());
  const auto both = interim_of(0.1, 20, 0.4, "w1", {"docvqa_val", "textvqa_val"});
  CHECK(must(d.publisher->publish_interim(other, both, 0)) == 2);

  const json line = d.lines().back();
  CHECK(line["metrics"].contains("eval/textvqa_val/anls"));
  CHECK_FALSE(line["metrics"].contains("eval/docvqa_val/anls"));
  CHECK_FALSE(line.contains("supersedes"));
}

TEST_CASE("an interim score of other weights than those that are loaded is refused") {
  Running d;
  const auto told = d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.5, "w2"), 0);
  REQUIRE_FALSE(told.has_value());
  CHECK(told.error().code == ErrorCode::kCorruption);
  CHECK(d.lines().empty());
}

TEST_CASE("a kill at any call of telling is healed at the next start, with one line") {
  std::size_t calls = 0;
  {
    Running d;
    d.files.reset_calls();
    must(d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.5), 0));
    calls = d.files.calls().size();
  }
  REQUIRE(calls > 3);
  for (const bool power : {false, true}) {
    for (std::size_t n = 1; n <= calls; ++n) {
      Running d;
      d.files.sync_all();
      d.files.die_at_call(n);
      (void)d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.5), 0);
      if (!power) d.files.sync_all();
      d.files.power_cut();

      d.reopen();
      must(d.publisher->publish_pending(d.s.run.id, 0));
      must(d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.5), 0));

      INFO("killed at call " << n << (power ? " with the power" : ""));
      REQUIRE(d.lines().size() == 1);
      CHECK(d.lines()[0]["seq"] == 1);
      CHECK(d.lines()[0]["final"] == false);
    }
  }
}

TEST_CASE("a deleted metrics.jsonl has its interim lines again, each at its place") {
  Running d;
  must(d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.5), 0));
  d.end(0.5);
  const auto text = d.files.content(kLog);

  must(d.files.remove_file(kLog));
  must(d.publisher->publish_pending(d.s.run.id, 0));

  CHECK(d.files.content(kLog) == text);
}

TEST_CASE("a lost database takes no interim line for a result, and does not write it twice") {
  Running d;
  must(d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.5), 0));
  const auto text = d.files.content(kLog);
  d.publisher.reset();
  d.s.store.reset();
  for (const char* const suffix : {"", "-wal", "-shm"}) {
    std::filesystem::remove(d.s.db() + suffix);
  }
  d.reopen();

  const Recalled recalled = must(recall_published(d.files, kDir, *d.s.store, d.s.run));
  CHECK(recalled.taken == 0);
  CHECK(recalled.left.empty());
  d.id = d.s.plan(500).id;
  d.s.bring(d.id, kEvaluating);
  CHECK(must(d.publisher->publish_interim(d.id, interim_of(0.1, 20, 0.5), 0)) == 1);
  CHECK(d.files.content(kLog) == text);
  d.end(0.5);
  CHECK(d.lines().back()["seq"] == 2);
  CHECK(d.lines().back()["supersedes"] == 1);
}
