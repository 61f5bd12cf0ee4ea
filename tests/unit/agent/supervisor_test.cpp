#include "agent/supervise/supervisor.h"

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <functional>

#include "tests/unit/agent/fake_evaluator.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/heard.h"

using namespace evalcar;
using namespace evalcar::supervise;
using evalcar::test::FakeClock;
using evalcar::testing::FakeEvaluator;
using evalcar::testing::FakeEvaluatorScript;
using std::chrono::seconds;

namespace {

const std::string kHash(64, 'a');

struct Bench {
  explicit Bench(seconds stuck = seconds(86400))
      : supervisor(std::make_unique<FakeEvaluator>(script), clock,
                   {.stage_timeouts = {{"starting", seconds(60)},
                                       {"loading", seconds(600)},
                                       {"evaluating", seconds(3600)},
                                       {"heartbeat", seconds(120)},
                                       {"stuck", stuck}}}) {}

  FakeClock clock;
  FakeEvaluatorScript script;
  Supervisor supervisor;

  void begin(const std::string& id = "7") {
    Job job;
    job.load.id = id;
    job.load.dir = "/leases/5-1-regular";
    job.settings.tasks = {"a", "b"};
    supervisor.begin(job);
  }
  std::vector<JobEvent> say(EvaluatorEvent event) {
    script.pending.push_back(std::move(event));
    return supervisor.step();
  }
  void reach_evaluating() {
    begin();
    (void)say(protocol::Message(protocol::Hello{}));
    REQUIRE(say(loaded("7")).size() == 1);
    supervisor.evaluate({});
  }
  static protocol::Message loaded(const std::string& id) {
    protocol::Loaded m;
    m.id = id;
    m.weights_sha256 = kHash;
    return m;
  }
  static protocol::EvaluationResult result() {
    protocol::EvaluationResult m;
    m.id = "7";
    m.weights_sha256 = kHash;
    m.tasks.resize(2);
    m.tasks[0].task = "b";
    m.tasks[1].task = "a";
    for (protocol::TaskResult& task : m.tasks) task.fingerprint = kHash;
    return m;
  }
};

int times_in(const std::string& text, const std::string& words) {
  int times = 0;
  for (auto at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++times;
  return times;
}

JobFailed failure_of(const std::vector<JobEvent>& events) {
  REQUIRE(events.size() == 1);
  REQUIRE(std::holds_alternative<JobFailed>(events[0]));
  return std::get<JobFailed>(events[0]);
}

}  // namespace

TEST_CASE("a job goes from hello to its result, with the answers that are known already") {
  Bench bench;
  bench.begin();
  CHECK(bench.say(protocol::Message(protocol::Hello{})).empty());
  CHECK(bench.script.received_of<protocol::Load>().at(0).dir == "/leases/5-1-regular");

  const auto events = bench.say(Bench::loaded("7"));
  REQUIRE(events.size() == 1);
  CHECK(std::get<JobLoaded>(events[0]).loaded.weights_sha256 == kHash);
  bench.supervisor.evaluate({protocol::Answered{"", "a", 3, "text", 2, kHash}});

  CHECK(bench.script.received_of<protocol::Answered>().at(0).id == "7");
  CHECK(bench.script.received_of<protocol::Evaluate>().at(0).settings.tasks.size() == 2);
  const protocol::Prepared prepared{"7", {{"a", kHash}, {"b", kHash}}};
  CHECK(std::get<protocol::Prepared>(bench.say(protocol::Message(prepared)).at(0)) == prepared);
  const auto done = bench.say(protocol::Message(Bench::result()));
  REQUIRE(done.size() == 1);
  CHECK(std::holds_alternative<protocol::EvaluationResult>(done[0]));
  CHECK(bench.supervisor.ready());
  CHECK(bench.script.starts == 1);
}

TEST_CASE("an evaluator that does not say of what its numbers are is not believed") {
  Bench bench;
  bench.reach_evaluating();
  const protocol::Prepared unnamed{"7", {{"a", "x"}}};
  CHECK(failure_of(bench.say(protocol::Message(unnamed))).kind == "corruption");

  Bench other;
  other.reach_evaluating();
  protocol::EvaluationResult result = Bench::result();
  result.tasks[1].fingerprint.clear();
  CHECK(failure_of(other.say(protocol::Message(result))).kind == "corruption");
  CHECK(other.script.kills == 1);
}

TEST_CASE("the next job runs in the same process, without a new start") {
  Bench bench;
  bench.reach_evaluating();
  (void)bench.say(protocol::Message(Bench::result()));

  bench.begin("8");

  CHECK(bench.script.starts == 1);
  CHECK(bench.script.received_of<protocol::Load>().at(1).id == "8");
}

TEST_CASE("an evaluator that dies fails the job with its last words, and rests before a restart") {
  Bench bench;
  bench.reach_evaluating();

  const JobFailed failure = failure_of(bench.say(Exited{"signal 11; CUDA error: 700", {}}));

  CHECK(failure.kind == "evaluator_died");
  CHECK(failure.retryable);
  CHECK(failure.message.find("CUDA error: 700") != std::string::npos);
  CHECK_FALSE(bench.supervisor.ready());
  bench.clock.advance(seconds(1));
  CHECK(bench.supervisor.ready());
  bench.begin();
  CHECK(bench.script.starts == 2);
}

TEST_CASE("the pause before a restart grows with each death") {
  Bench bench;
  for (const int pause : {1, 2, 4}) {
    bench.begin();
    (void)bench.say(Exited{"exit code 1", 1});
    bench.clock.advance(seconds(pause) - std::chrono::milliseconds(1));
    CHECK_FALSE(bench.supervisor.ready());
    bench.clock.advance(std::chrono::milliseconds(1));
    CHECK(bench.supervisor.ready());
  }
}

TEST_CASE("a program that cannot be started fails the job and says why") {
  Bench bench;
  bench.script.start_error = make_error(ErrorCode::kNotFound, "start: /x: No such file");
  bench.begin();

  CHECK(failure_of(bench.supervisor.step()).message.find("/x: No such file") != std::string::npos);
}

TEST_CASE("silence and a stage that takes too long are time-outs, and the process is killed") {
  Bench silent;
  silent.reach_evaluating();
  silent.clock.advance(seconds(119));
  CHECK(silent.supervisor.step().empty());
  silent.clock.advance(seconds(1));
  CHECK(failure_of(silent.supervisor.step()).kind == "timeout");
  CHECK(silent.script.kills == 1);
  CHECK_FALSE(silent.supervisor.ready());  // until it is seen to be dead

  Bench slow;
  slow.begin();
  (void)slow.say(protocol::Message(protocol::Hello{}));
  for (int minute = 0; minute < 9; ++minute) {
    slow.clock.advance(seconds(60));
    protocol::Progress progress;
    progress.id = "7";
    progress.stage = "loading";
    CHECK(slow.say(protocol::Message(progress)).size() == 1);
  }
  slow.clock.advance(seconds(60));
  CHECK(failure_of(slow.supervisor.step()).message.find("loading") != std::string::npos);
}

TEST_CASE("an evaluator that is alive but does not advance is killed, and started again later") {
  Bench bench(seconds(300));
  bench.reach_evaluating();
  const auto beat = [&](std::uint64_t tick, const std::string& stage) {
    bench.clock.advance(seconds(60));
    return bench.say(protocol::Message(protocol::Progress{
        .id = "7", .stage = stage, .task = "a", .done = 12, .total = 40, .tick = tick}));
  };
  // A slow device: each step comes within the limit.
  for (std::uint64_t tick = 1; tick < 10; ++tick) {
    for (int minute = 0; minute < 4; ++minute) REQUIRE(beat(tick, "evaluating").size() == 1);
  }
  REQUIRE(beat(10, "evaluating").size() == 1);
  // Now it stands still. Neither another stage nor a smaller tick, nor what follows that, counts.
  REQUIRE(beat(10, "preparing").size() == 1);
  REQUIRE(beat(9, "evaluating").size() == 1);
  REQUIRE(beat(10, "evaluating").size() == 1);
  REQUIRE(beat(10, "evaluating").size() == 1);
  CHECK(bench.supervisor.until_deadline() == seconds(60));

  const auto events = beat(10, "evaluating");

  REQUIRE(events.size() == 2);  // the progress, and the end
  const auto failure = std::get<JobFailed>(events[1]);
  CHECK(failure.kind == "timeout");
  CHECK(failure.retryable);
  CHECK(failure.message.find("alive, but has not advanced for 300 s") != std::string::npos);
  CHECK(failure.message.find("\"evaluating\" (a, 12 of 40)") != std::string::npos);
  CHECK(failure.message.find("limits.stage_timeouts, stuck") != std::string::npos);
  CHECK(bench.script.kills == 1);
  CHECK_FALSE(bench.supervisor.ready());
  (void)bench.supervisor.step();  // it is seen to have ended
  CHECK_FALSE(bench.supervisor.ready());
  bench.clock.advance(seconds(1));
  CHECK(bench.supervisor.ready());
}

TEST_CASE("a load that stands still is noticed by its limit, and waiting for the agent is not") {
  Bench bench(seconds(300));
  bench.begin();
  (void)bench.say(protocol::Message(protocol::Hello{}));
  (void)bench.say(Bench::loaded("7"));
  bench.clock.advance(seconds(1000));  // the agent looks up what is known already
  CHECK(bench.supervisor.step().empty());
  bench.supervisor.evaluate({});
  (void)bench.say(protocol::Message(Bench::result()));

  bench.begin("8");
  for (int minute = 0; minute < 4; ++minute) {
    bench.clock.advance(seconds(60));
    protocol::Progress progress{.id = "8", .stage = "loading"};
    progress.tick = 500;  // of the job before
    REQUIRE(bench.say(protocol::Message(progress)).size() == 1);
  }
  bench.clock.advance(seconds(100));
  CHECK(bench.supervisor.step().empty());  // silent for 100 s, and without advance for 280 s
  bench.clock.advance(seconds(19));
  (void)bench.say(protocol::Message(protocol::Progress{.id = "8", .stage = "loading"}));
  bench.clock.advance(seconds(1));
  CHECK(failure_of(bench.supervisor.step()).message.find("has not advanced for 300 s") !=
        std::string::npos);
}

TEST_CASE("garbage, a wrong protocol and messages out of turn fail the job, not the agent") {
  Bench garbage;
  garbage.reach_evaluating();
  CHECK(failure_of(garbage.say(Garbage{"not a JSON object"})).kind == "corruption");
  CHECK(garbage.script.kills == 1);

  Bench old;
  old.begin();
  protocol::Hello hello;
  hello.protocol = 99;
  const JobFailed failure = failure_of(old.say(protocol::Message(hello)));
  CHECK(failure.kind == protocol::kNoEvaluator);
  CHECK(failure.message.find("protocol 99") != std::string::npos);

  Bench early;
  early.begin();
  (void)early.say(protocol::Message(protocol::Hello{}));
  CHECK(failure_of(early.say(protocol::Message(Bench::result()))).kind == "corruption");
}

TEST_CASE("a result of other weights or other tasks is never taken") {
  Bench weights;
  weights.reach_evaluating();
  auto result = Bench::result();
  result.weights_sha256 = std::string(64, 'b');
  CHECK(failure_of(weights.say(protocol::Message(result))).message.find("had loaded") !=
        std::string::npos);

  Bench tasks;
  tasks.reach_evaluating();
  result = Bench::result();
  result.tasks[1].task = "b";
  CHECK(failure_of(tasks.say(protocol::Message(result))).kind == "corruption");
}

TEST_CASE("an interim score is taken as such, unless it is of something else") {
  const auto interim = [] {
    protocol::Interim m;
    m.id = "7";
    m.weights_sha256 = kHash;
    m.fraction = 0.1;
    m.tasks.resize(1);
    m.tasks[0].task = "a";
    m.tasks[0].fingerprint = kHash;
    m.tasks[0].n = 20;
    m.tasks[0].documents = 200;
    return m;
  };
  Bench bench;
  bench.reach_evaluating();
  const auto events = bench.say(protocol::Message(interim()));
  REQUIRE(events.size() == 1);
  CHECK(std::get<protocol::Interim>(events[0]) == interim());

  const auto refused = [&](const std::function<void(protocol::Interim&)>& change) {
    Bench other;
    other.reach_evaluating();
    protocol::Interim changed = interim();
    change(changed);
    const JobFailed failure = failure_of(other.say(protocol::Message(changed)));
    return failure.kind == "corruption" && other.script.kills == 1;
  };
  CHECK(refused([](auto& m) { m.weights_sha256 = std::string(64, 'b'); }));
  CHECK(refused([](auto& m) { m.tasks[0].task = "c"; }));
  CHECK(refused([](auto& m) { m.tasks[0].fingerprint = "f"; }));
  CHECK(refused([](auto& m) { m.tasks[0].n = 200; }));
  CHECK(refused([](auto& m) { m.tasks.push_back(m.tasks[0]); }));
  CHECK(refused([](auto& m) { m.tasks.clear(); }));
  CHECK(refused([](auto& m) { m.fraction = 1; }));
}

TEST_CASE("an error of the job keeps the process, a fatal one ends it") {
  Bench bench;
  bench.reach_evaluating();
  protocol::JobError error{"7", "unsupported", "loading", "unknown architecture", false, false};
  CHECK(failure_of(bench.say(protocol::Message(error))).message == "unknown architecture");
  CHECK(bench.supervisor.ready());

  bench.begin();
  error.fatal = true;
  error.id.clear();
  CHECK_FALSE(failure_of(bench.say(protocol::Message(error))).retryable);
  CHECK(bench.script.kills == 1);
}

TEST_CASE("a cancelled job says nothing more, and a process that does not let go is killed") {
  Bench bench;
  bench.reach_evaluating();
  bench.supervisor.cancel();
  CHECK(bench.script.received_of<protocol::Cancel>().size() == 1);
  CHECK_FALSE(bench.supervisor.ready());
  CHECK(bench.say(protocol::Message(Bench::result())).empty());
  CHECK(bench.supervisor.ready());

  bench.begin();
  bench.supervisor.cancel();
  bench.clock.advance(seconds(10));
  CHECK(bench.supervisor.step().empty());
  CHECK(bench.script.kills == 1);
}

TEST_CASE("a kill by this side is told as such, and not as the kernel's for memory") {
  Bench bench;
  bench.reach_evaluating();

  Exited exited{
      "it closed its channel and went on, so this agent killed it; signal 9", {}, SIGKILL};
  exited.ended_by_us = true;
  const JobFailed failure = failure_of(bench.say(exited));

  CHECK(failure.kind == "evaluator_died");
  CHECK(failure.retryable);
  CHECK(failure.message.find("this agent killed it") != std::string::npos);
  CHECK(failure.message.find("memory") == std::string::npos);
}

TEST_CASE(
    "an evaluator that was told to go and takes its time is no death, and none starts before") {
  Bench bench;
  bench.reach_evaluating();
  (void)bench.say(protocol::Message(Bench::result()));
  bench.script.lingers = true;

  bench.supervisor.rest();

  CHECK_FALSE(bench.supervisor.ready());
  CHECK(bench.supervisor.step().empty());
  CHECK_FALSE(bench.supervisor.ready());
  bench.script.lingers = false;
  CHECK(bench.supervisor.step().empty());
  CHECK(bench.supervisor.ready());  // without the pause after a death
  bench.begin("8");
  CHECK(bench.script.starts == 2);
}

TEST_CASE("an evaluator that no signal ends is told once, with its process, until it is gone") {
  Bench bench;
  bench.reach_evaluating();
  bench.script.lingers = true;
  bench.clock.advance(seconds(120));
  CHECK(failure_of(bench.supervisor.step()).kind == "timeout");
  CHECK(bench.supervisor.stuck().empty());
  CHECK(bench.supervisor.until_deadline() == seconds(30));

  const test::Heard heard;
  bench.clock.advance(seconds(30));
  CHECK(bench.supervisor.step().empty());
  bench.clock.advance(seconds(30));
  CHECK(bench.supervisor.step().empty());

  CHECK(bench.supervisor.stuck().find("process 4711 was killed 60 s ago") != std::string::npos);
  CHECK(times_in(heard.text(), "process 4711 was killed 30 s ago and does not end") == 1);
  CHECK(times_in(heard.text(), "does not end") == 1);
  CHECK_FALSE(bench.supervisor.ready());
  CHECK_FALSE(bench.supervisor.until_deadline().has_value());

  bench.script.lingers = false;
  (void)bench.supervisor.step();
  CHECK(bench.supervisor.stuck().empty());
  CHECK(times_in(heard.text(), "has ended at last") == 1);
  bench.clock.advance(seconds(1));
  CHECK(bench.supervisor.ready());
}

TEST_CASE("a kill that was not ours is memory that ran out, ours is what it was for") {
  Bench bench;
  bench.reach_evaluating();
  const JobFailed failure =
      failure_of(bench.say(Exited{"signal 9 (Killed); loading layer 3", {}, SIGKILL}));
  CHECK(failure.kind == protocol::kOutOfMemory);
  CHECK(failure.retryable);
  CHECK_FALSE(failure.surroundings);
  CHECK(failure.message.find("loading layer 3") != std::string::npos);
  CHECK(failure.message.find("evaluate.batch_size") != std::string::npos);

  Bench crashed;
  crashed.reach_evaluating();
  CHECK(failure_of(crashed.say(Exited{"signal 11 (Segmentation fault)", {}, SIGSEGV})).kind ==
        "evaluator_died");

  Bench quiet;
  quiet.reach_evaluating();
  const JobFailed ended = failure_of(quiet.say(Exited{"exit code 0", 0}));
  CHECK(ended.kind == "evaluator_died");
  CHECK(ended.message.find("ended without a result: exit code 0") != std::string::npos);
}

TEST_CASE("who is killed for silence or for nonsense leaves its last words") {
  Bench bench;
  bench.script.last_words = "reading shard 2";
  bench.reach_evaluating();
  bench.clock.advance(seconds(120));
  const JobFailed silent = failure_of(bench.supervisor.step());
  CHECK(silent.kind == "timeout");
  CHECK(silent.message.find("its last words: reading shard 2") != std::string::npos);

  Bench garbage;
  garbage.script.last_words = "reading shard 2";
  garbage.reach_evaluating();
  CHECK(failure_of(garbage.say(Garbage{"x"})).message.find("reading shard 2") != std::string::npos);
}

TEST_CASE("the end of an evaluator is one event, also if it was killed before the agent stops") {
  Bench bench;
  bench.reach_evaluating();
  const test::Heard heard;
  const auto ends = [&heard] {
    const std::string text = heard.text();
    std::size_t found = 0;
    for (auto at = text.find("=evaluator_ended"); at != std::string::npos;
         at = text.find("=evaluator_ended", at + 1)) {
      ++found;
    }
    return found;
  };
  (void)bench.say(Garbage{"x"});
  bench.script.lingers = true;
  CHECK(ends() == 0);

  bench.supervisor.stop();
  CHECK(ends() == 1);
  bench.supervisor.stop();
  bench.script.lingers = false;
  bench.script.pending = {Exited{"signal 9 (Killed)", {}, 9}};
  (void)bench.supervisor.step();
  CHECK(ends() == 1);
}

TEST_CASE("after a fault of the device nothing that the process says counts") {
  for (const std::string_view kind : {protocol::kDeviceFault, protocol::kDeviceLost}) {
    Bench bench;
    bench.reach_evaluating();
    const JobFailed failure = failure_of(bench.say(protocol::Message(
        protocol::JobError{.id = "7", .kind = std::string(kind), .message = "it broke"})));
    CHECK(failure.surroundings == (kind == protocol::kDeviceLost));
    CHECK(failure.retryable == (kind == protocol::kDeviceFault));
    CHECK(bench.script.kills == 1);
    CHECK(bench.say(protocol::Message(Bench::result())).empty());
    CHECK_FALSE(bench.supervisor.ready());  // the pause before another process
  }

  Bench busy;
  busy.reach_evaluating();
  CHECK(failure_of(busy.say(protocol::Message(protocol::JobError{
                       .id = "7", .kind = std::string(protocol::kDeviceBusy), .message = "used"})))
            .surroundings);
  CHECK(busy.script.kills == 1);  // its weights must not stay on a device that others need
}

TEST_CASE("an evaluator that refuses its command line tells of the configuration") {
  Bench bench;
  bench.begin();

  const JobFailed failure = failure_of(bench.say(Exited{"exit code 2; no such option", 2}));

  CHECK(failure.kind == "invalid_argument");
  CHECK(failure.surroundings);
}

TEST_CASE("whatever goes wrong before the hello is not the checkpoint's fault") {
  const std::vector<EvaluatorEvent> ends = {
      Exited{"exit code 127; libtorch.so: cannot open", 127}, Exited{"signal 11", {}},
      Garbage{"Welcome!"},
      protocol::Message(protocol::JobError{.kind = "out_of_memory", .message = "no room"})};
  for (const EvaluatorEvent& end : ends) {
    Bench bench;
    bench.begin();
    const JobFailed failure = failure_of(bench.say(end));
    CHECK(failure.kind == protocol::kNoEvaluator);
    CHECK(failure.surroundings);
  }

  Bench slow;
  slow.begin();
  slow.clock.advance(seconds(60));
  CHECK(failure_of(slow.supervisor.step()).surroundings);
}

TEST_CASE("a device that is not there keeps its kind, and a death while it works is its job's") {
  Bench bench;
  bench.begin();
  const JobFailed device = failure_of(bench.say(protocol::Message(protocol::JobError{
      .kind = std::string(protocol::kNoDevice), .message = "no GPU here", .fatal = true})));
  CHECK(device.kind == protocol::kNoDevice);
  CHECK(device.surroundings);

  Bench working;
  working.reach_evaluating();
  CHECK_FALSE(failure_of(working.say(Exited{"signal 11", {}})).surroundings);
}

TEST_CASE("tasks that have numbers are neither asked of the data nor expected in the result") {
  Bench b;
  Job job;
  job.load.id = "7";
  job.settings.tasks = {"a", "b"};
  job.measured = {"a"};
  job.series = "run-1 ema";
  b.supervisor.begin(job);
  (void)b.say(protocol::Message(protocol::Hello{}));
  (void)b.say(Bench::loaded("7"));
  b.supervisor.evaluate({});

  const auto load = b.script.received_of<protocol::Load>().back();
  REQUIRE(load.settings.has_value());
  CHECK(load.settings->tasks == std::vector<std::string>{"b"});
  const auto evaluate = b.script.received_of<protocol::Evaluate>().back();
  CHECK(evaluate.settings.tasks == std::vector<std::string>{"a", "b"});
  CHECK(evaluate.measured == std::vector<std::string>{"a"});
  CHECK(evaluate.series == "run-1 ema");

  auto rest = Bench::result();
  rest.tasks.resize(1);  // b alone
  const auto events = b.say(protocol::Message(rest));
  REQUIRE(events.size() == 1);
  CHECK(std::holds_alternative<protocol::EvaluationResult>(events[0]));
}

TEST_CASE("a result that repeats a task that has a number is refused") {
  Bench b;
  Job job;
  job.load.id = "7";
  job.settings.tasks = {"a", "b"};
  job.measured = {"a"};
  b.supervisor.begin(job);
  (void)b.say(protocol::Message(protocol::Hello{}));
  (void)b.say(Bench::loaded("7"));
  b.supervisor.evaluate({});

  CHECK(failure_of(b.say(protocol::Message(Bench::result()))).kind == "corruption");
}
