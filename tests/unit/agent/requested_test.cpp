// Jobs that ask for checkpoints which were measured, and may be others since.
#include "agent/run/requested.h"

#include <catch2/generators/catch_generators.hpp>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "agent/run/evaluation_settings.h"
#include "tests/unit/agent/working_agent.h"
#include "tests/unit/support/forwarding_file_system.h"

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

  explicit Asked(config::Policy policy = config::Policy::kNewestFirst) {
    settings.evaluate.policy = policy;
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
  void ask(const std::string& id, std::int64_t step = 5) {
    desk.submit({.id = id,
                 .checkpoint = "/out/checkpoint-" + std::to_string(step),
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

TEST_CASE("a job waits while its output directory is away for a moment, and is answered then") {
  Asked t;
  t.at_load[7] = [](const protocol::Load&) {};
  t.save(7, 'b');
  t.ask("job", 7);
  REQUIRE(t.after(30).status == "running");

  must(t.files.rename("/out", "/away"));

  CHECK(t.after(3).status == "queued");
  CHECK(t.after(0).reason.find("output directory") != std::string::npos);
  t.ask("other", 7);
  CHECK(t.after(3, "other").status == "queued");
  must(t.files.rename("/away", "/out"));
  t.at_load[5](t.loaded);
  CHECK(Asked::pattern_of(t.after(60)) == 'b');
  CHECK(Asked::pattern_of(t.after(0, "other")) == 'b');
}

TEST_CASE("a job that waits for long outlives a moment in which nothing can be recorded") {
  Asked t;
  t.agent->begin_no_more();
  t.save(7, 'b');
  t.ask("job", 7);
  REQUIRE(t.after(150).status == "queued");
  t.refuse("INSERT ON checkpoint");

  t.save(8, 'c');

  CHECK(t.after(20).status == "queued");
  CHECK(t.after(0).reason.find("no room") != std::string::npos);
  t.accept();
  CHECK(t.after(20).status == "queued");
  CHECK(t.after(0).reason.empty());
}

TEST_CASE("the time in which a checkpoint could not be recorded is none in which it was unseen") {
  Asked t;
  t.refuse("INSERT ON checkpoint");
  t.save(7, 'b');

  t.ask("job", 7);

  CHECK(t.after(200).status == "queued");
  t.accept();
  t.at_load[7] = t.at_load[5];
  CHECK(Asked::pattern_of(t.after(60)) == 'b');
}

namespace {

/// Says nothing more as soon as it is asked for the checkpoint's folder.
struct FallsSilent final : test::ForwardingFileSystem {
  using ForwardingFileSystem::ForwardingFileSystem;
  bool is_broken = false;
  mutable bool is_silent = false;
  Result<FileInfo> info_followed(const std::string& path) const override {
    is_silent = is_silent || (is_broken && path == "/out/checkpoint-5");
    if (is_silent) return make_error(ErrorCode::kUnavailable, path + ": does not answer");
    return below().info_followed(path);
  }
  Status answers(const std::string& path) const override {
    if (!is_silent) return {};
    return make_error(ErrorCode::kUnavailable, path + ": does not answer");
  }
};

}  // namespace

TEST_CASE("a folder that cannot be asked for is not gone, and old numbers are no answer") {
  Asked t;
  FallsSilent mount(t.files);
  run::Surroundings around{mount, t.clock, {}, "test", {}, {}, {}};
  around.make_notifier = t.around.make_notifier;
  around.desk = &t.desk;
  t.agent.reset();
  t.agent = must(run::Agent::create(around, t.settings, {},
                                    std::make_unique<testing::FakeEvaluator>(t.script)));
  t.turns(15);
  t.remove(5);
  t.save(5, 'b');

  mount.is_broken = true;
  t.ask("job");
  t.turn(seconds(0));

  REQUIRE(mount.is_silent);
  CHECK(t.after(0).status == "queued");
  mount.is_broken = mount.is_silent = false;
  CHECK(Asked::pattern_of(t.after(60)) == 'b');
  t.agent.reset();
}

TEST_CASE("a job for a folder that never is a checkpoint fails in the end") {
  Asked t;

  t.ask("job", 7);

  CHECK(t.after(60).status == "queued");
  const request::JobNews job = t.after(100);
  CHECK(job.status == "failed");
  CHECK(job.reason.find("is no checkpoint") != std::string::npos);
}

TEST_CASE("a job for a checkpoint that another training has removed with its folder fails") {
  Asked t;
  t.agent->begin_no_more();
  t.save(7, 'b');
  t.ask("job", 7);
  REQUIRE(t.after(30).status == "queued");

  must(remove_tree(t.files, "/out"));
  CHECK(t.after(200).status == "queued");
  t.save(3, 'c');

  const request::JobNews job = t.after(200);
  CHECK(job.status == "failed");
  CHECK(job.reason.find("made anew") != std::string::npos);
}

namespace {

/// Only the newest of what waits is measured; something runs until it is told to end.
struct Latest : Asked {
  Latest() : Asked(config::Policy::kLatest) {
    at_load[6] = [](const protocol::Load&) {};
    save(6, 'f');
    turns(30);
    REQUIRE(states().at("6 docvqa_val") == state::EvaluationState::kLoading);
    at_load[7] = at_load[8] = at_load[5];
  }
  void end_what_runs() { at_load[5](loaded); }
};

}  // namespace

TEST_CASE("what a job waits for is not given up for a newer checkpoint") {
  Latest t;
  t.save(7, 'b');
  t.ask("job", 7);
  REQUIRE(t.after(30).status == "queued");
  t.save(8, 'c');
  t.turns(30);

  t.end_what_runs();

  CHECK(Asked::pattern_of(t.after(60)) == 'b');
  CHECK(t.states().at("8 docvqa_val") == state::EvaluationState::kPublished);
}

TEST_CASE("a job is answered by what was given up for a newer checkpoint, while that is there") {
  const bool is_there = GENERATE(true, false);
  Latest t;
  t.save(7, 'b');
  t.turns(30);
  t.save(8, 'c');
  t.turns(30);
  t.end_what_runs();
  t.turns(30);
  REQUIRE(t.states().at("7 docvqa_val") == state::EvaluationState::kSuperseded);
  if (!is_there) t.remove(7);
  if (!is_there) t.turns(30);

  t.ask("job", 7);

  const request::JobNews job = t.after(60);
  if (is_there) {
    CHECK(Asked::pattern_of(job) == 'b');
  } else {
    CHECK(job.status == "failed");
    CHECK(job.reason == "its checkpoint is gone, and so are its files");
  }
}

TEST_CASE("a job on weights that were saved again waits for their numbers to be published") {
  Asked t;
  bool full = true;
  t.files.on_call([&](const test::Call& call) {
    const bool meant = call.path.find("/_evalcar/results/7") != std::string::npos;
    if (full && meant && call.operation == "make_directory") {
      t.files.fail_operation("make_directory", ENOSPC);
    }
  });
  t.at_load[7] = t.at_load[5];
  t.at_evaluate = [&t, say = t.at_evaluate] {
    t.say(protocol::Prepared{t.loaded.id, {{"docvqa_val", t.hash}}});
    say();
  };
  t.save(7, 'b');
  t.turns(40);
  REQUIRE(t.states().at("7 docvqa_val") == state::EvaluationState::kScored);
  t.remove(7);
  t.turns(20);
  t.save(7, 'b');
  t.turns(60);
  REQUIRE(t.states().at("7 docvqa_val") == state::EvaluationState::kSuperseded);

  t.ask("job", 7);

  CHECK(t.after(30).status == "running");
  CHECK(t.after(0).stage == "publishing");
  full = false;
  CHECK(Asked::pattern_of(t.after(60)) == 'b');
}

TEST_CASE("what stands in the way is told beside what is only warned of") {
  publish::LiveBoard board;
  Working t;
  t.around.board = &board;
  t.files.put_file("/out/run-0/checkpoint-5/model.safetensors", safetensors('a'));
  t.files.put_file("/out/run-0/checkpoint-5/config.json", "{}");
  t.begin();
  t.turns(15);
  REQUIRE_FALSE(board.directories().front().facts.warning.empty());

  CHECK(board.hindrance().empty());
  CHECK(t.agent->hindrance().empty());
  must(t.files.rename("/out", "/away"));
  t.turns(60);
  CHECK(board.hindrance().find("/out") != std::string::npos);
  CHECK(t.agent->hindrance() == board.hindrance());
  must(t.files.rename("/away", "/out"));
  t.turns(60);
  CHECK(board.hindrance().empty());
}

TEST_CASE("what waits for data alone is hindered, whoever asked for it") {
  Asked t;
  t.at_load[7] = [&t](const protocol::Load&) { t.say_error(std::string(protocol::kData), false); };
  t.save(7, 'b');
  t.ask("job", 7);

  CHECK(t.after(60).status == "queued");
  CHECK(t.agent->hindrance().find("data") != std::string::npos);
}
