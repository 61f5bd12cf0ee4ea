// Jobs that ask for checkpoints which were measured, and may be others since.
#include "agent/run/requested.h"

#include <nlohmann/json.hpp>

#include "agent/run/evaluation_settings.h"
#include "tests/unit/agent/working_agent.h"

using namespace evalcar;
using evalcar::test::must;
using evalcar::testing::safetensors;
using evalcar::testing::Working;
using std::chrono::seconds;

namespace {

/// No hints, and seldom a poll; the evaluator's hash is the pattern of the weights.
struct Asked : Working {
  request::JobDesk desk;
  std::string hash;
  std::map<std::string, request::JobNews> news;

  Asked() {
    around.desk = &desk;
    settings.watch.poll_interval = seconds(10);
    settings.evaluate.weights = {"regular"};
    at_load[5] = [this](const protocol::Load& load) {
      hash = std::string(64, must(read_file(files, load.dir + "/model.safetensors", 4096)).back());
      say(protocol::Loaded{.id = load.id, .weights_sha256 = hash, .dtype = "float32"});
    };
    at_evaluate = [this] {
      protocol::EvaluationResult result;
      result.id = loaded.id;
      result.weights_sha256 = hash;
      result.tasks = {test::anls_result("docvqa_val", 0.5, hash)};
      say(result);
    };
    begin();
    save(5, 'a');
    turns(15);
    REQUIRE(states().at("5 docvqa_val") == state::EvaluationState::kPublished);
  }
  void ask(const std::string& id) {
    desk.submit({.id = id,
                 .checkpoint = "/out/checkpoint-5",
                 .settings = run::evaluation_settings(settings.evaluate)});
  }
  request::JobNews after(int count, const std::string& id = "job") {
    turns(count);
    for (request::JobNews& one : desk.take_news()) news[one.id] = std::move(one);
    return news[id];
  }
  /// Of the weights that the answer is of: their pattern.
  static char pattern_of(const request::JobNews& job) {
    REQUIRE(job.status == "completed");
    return nlohmann::json::parse(job.details)["weights_sha256"].get<std::string>().front();
  }
};

}  // namespace

TEST_CASE("a job is answered with what was measured, if that is what is there") {
  Asked t;

  t.ask("job");

  CHECK(Asked::pattern_of(t.after(3)) == 'a');
}

TEST_CASE("a job for a folder that was replaced a moment ago waits for the new weights") {
  Asked t;
  t.turn();
  t.remove(5);
  t.save(5, 'b');

  t.ask("job");

  t.turn(seconds(0));
  CHECK(t.after(0).status == "queued");
  CHECK(Asked::pattern_of(t.after(60)) == 'b');
}

TEST_CASE("a job in the middle of a save waits for its end") {
  Asked t;
  t.turn();
  test::must(t.files.remove_file("/out/checkpoint-5/trainer_state.json"));
  t.files.put_file("/out/checkpoint-5/model.safetensors", safetensors('b').substr(0, 20));

  t.ask("job");

  CHECK(t.after(10).status == "queued");
  CHECK(t.after(0).reason.find("not complete") != std::string::npos);
  t.save(5, 'b');
  CHECK(Asked::pattern_of(t.after(60)) == 'b');
}

TEST_CASE("a job for weights that were overwritten and never became whole fails") {
  Asked t;
  t.turn();
  t.files.put_file("/out/checkpoint-5/model.safetensors", safetensors('b').substr(0, 20));

  t.ask("job");

  const request::JobNews job = t.after(90);
  CHECK(job.status == "failed");
  CHECK(job.reason.find("was written again") != std::string::npos);
}

TEST_CASE("a job is answered with what was measured where the folder is gone") {
  Asked t;
  t.turn();
  t.remove(5);

  t.ask("job");

  t.turn(seconds(0));
  CHECK(Asked::pattern_of(t.after(0)) == 'a');
}

TEST_CASE("a job is answered with what was measured where a delete left some of the folder") {
  Asked t;
  t.turn();
  test::must(t.files.remove_file("/out/checkpoint-5/config.json"));

  t.ask("job");

  CHECK(Asked::pattern_of(t.after(60)) == 'a');
}
