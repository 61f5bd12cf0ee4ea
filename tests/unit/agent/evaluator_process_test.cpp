// With real processes: the shell plays the evaluator. Waiting is done with poll, never by sleeping.
#include "agent/supervise/evaluator_process.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "agent/supervise/find_evaluator.h"
#include "tests/unit/agent/temporary_folder.h"

using namespace evalcar;
using namespace evalcar::supervise;

namespace {

/// `script` runs with the channel as descriptor 3.
EvaluatorProcess shell(const std::string& script) {
  return EvaluatorProcess({"/bin/sh", "-c", script, "fake-evaluator"});
}

/// Polls until `count` events came or 30 s passed.
std::vector<EvaluatorEvent> wait_for(EvaluatorProcess& process, std::size_t count) {
  std::vector<EvaluatorEvent> events;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (events.size() < count && std::chrono::steady_clock::now() < deadline) {
    for (auto& event : process.poll()) events.push_back(std::move(event));
    std::vector<pollfd> descriptors;
    process.add_descriptors(descriptors);
    if (events.size() < count) (void)::poll(descriptors.data(), descriptors.size(), 10);
  }
  return events;
}

}  // namespace

TEST_CASE("messages go both ways, and death comes with the exit code and the last words") {
  EvaluatorProcess process = shell(
      "read -r line <&3; echo \"got $line\" >&2; "
      "echo '{\"type\":\"bye\"}' >&3; echo last words; exit 7");
  REQUIRE(process.start().has_value());
  process.send(protocol::Cancel{"x"});

  const auto events = wait_for(process, 2);

  REQUIRE(events.size() == 2);
  const auto* message = std::get_if<protocol::Message>(&events[0]);
  REQUIRE(message != nullptr);
  CHECK(std::holds_alternative<protocol::Bye>(*message));
  const std::string evidence = std::get<Exited>(events[1]).evidence;
  CHECK(evidence.find("exit code 7") != std::string::npos);
  CHECK(evidence.find("last words") != std::string::npos);
  CHECK(evidence.find("got {\"id\":\"x\",\"type\":\"cancel\"}") != std::string::npos);
  CHECK_FALSE(process.running());
}

TEST_CASE("a line that is no message is garbage, and an endless line does not fill the memory") {
  EvaluatorProcess garbage = shell("echo hello >&3; read -r line <&3");
  REQUIRE(garbage.start().has_value());
  const auto events = wait_for(garbage, 1);
  REQUIRE(events.size() == 1);
  CHECK(std::holds_alternative<Garbage>(events[0]));

  EvaluatorProcess endless = shell("tr '\\0' 'x' < /dev/zero >&3");
  REQUIRE(endless.start().has_value());
  const auto flood = wait_for(endless, 1);
  REQUIRE(flood.size() >= 1);
  CHECK(std::get<Garbage>(flood[0]).what.find("more than") != std::string::npos);
}

TEST_CASE("kill ends the evaluator and everything it started") {
  const testing::TemporaryFolder folder;
  EvaluatorProcess process = shell("(echo $BASHPID; exec sleep 1000) & echo $! > " +
                                   (folder / "pid") + "; echo '{\"type\":\"bye\"}' >&3; wait");
  REQUIRE(process.start().has_value());
  REQUIRE(wait_for(process, 1).size() == 1);
  const auto text = read_file(RealFileSystem(), folder / "pid", 100);
  REQUIRE(text.has_value());
  const pid_t grandchild = std::stoi(*text);

  process.kill();

  const auto events = wait_for(process, 1);
  REQUIRE(events.size() == 1);
  CHECK(std::get<Exited>(events[0]).evidence.find("signal 9") != std::string::npos);
  // Its parent is gone, so init reaps it: dead or soon dead is what can be asked for.
  for (int turn = 0; turn < 2000 && ::kill(grandchild, 0) == 0; ++turn) {
    const auto status =
        read_file(RealFileSystem(), "/proc/" + std::to_string(grandchild) + "/stat", 4096);
    if (!status.has_value() || status->find(") Z") != std::string::npos) break;
    (void)::poll(nullptr, 0, 5);
  }
  const auto status =
      read_file(RealFileSystem(), "/proc/" + std::to_string(grandchild) + "/stat", 4096);
  CHECK((!status.has_value() || status->empty() || status->find(") Z") != std::string::npos));
}

TEST_CASE("a child leaves no core, goes first when memory runs out, and yields to the trainer") {
  ::setenv("RANK", "3", 1);
  ::setenv("SLURM_PROCID", "3", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  EvaluatorProcess process = shell(
      "echo \"core $(ulimit -c) $(ulimit -Hc), oom $(cat /proc/self/oom_score_adj), nice $(nice), "
      "disk $(ionice), rank ${RANK-none} ${SLURM_PROCID-none}, gpu $CUDA_VISIBLE_DEVICES, "
      "$(cat /proc/self/autogroup 2>&1)\"");
  REQUIRE(process.start().has_value());
  ::unsetenv("RANK");
  ::unsetenv("SLURM_PROCID");
  ::unsetenv("CUDA_VISIBLE_DEVICES");

  const auto events = wait_for(process, 1);

  REQUIRE(events.size() == 1);
  const std::string evidence = std::get<Exited>(events[0]).evidence;
  INFO(evidence);
  CHECK(evidence.find("core 0 0") != std::string::npos);
  CHECK(evidence.find("nice 1") != std::string::npos);  // 10 more than ours, at most 19
  // Where there are such groups: niceness alone would count among its own threads only.
  const std::size_t group = evidence.find("/autogroup-");
  if (group != std::string::npos) CHECK(evidence.find(" nice 1", group) != std::string::npos);
  // Where these tests run at idle priority themselves, that is inherited.
  CHECK((evidence.find("disk best-effort: prio 7,") != std::string::npos ||
         evidence.find("disk idle,") != std::string::npos));
  CHECK(evidence.find("rank none none, gpu 7") != std::string::npos);
  const std::size_t oom = evidence.find("oom ");
  REQUIRE(oom != std::string::npos);
  CHECK(std::stoi(evidence.substr(oom + 4)) >= 500);
}

TEST_CASE("a signal is told as such, and what a terminal would obey is escaped") {
  EvaluatorProcess process = shell("printf 'red \\033[31m \\377 end\\n' >&2; kill -SEGV $$");
  REQUIRE(process.start().has_value());

  const auto events = wait_for(process, 1);

  REQUIRE(events.size() == 1);
  const Exited exited = std::get<Exited>(events[0]);
  CHECK(exited.signal == SIGSEGV);
  CHECK_FALSE(exited.exit_code.has_value());
  CHECK(exited.evidence.find("signal 11") != std::string::npos);
  CHECK(exited.evidence.find("red \\x1b[31m \\xff end") != std::string::npos);
}

TEST_CASE("an end is waited for by a descriptor of its own, behind those that it closes") {
  const OwnedFd known(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (known.get() < 0) SKIP("this kernel has no descriptors of processes");
  auto child = ChildProcess::spawn({"/bin/sh", "-c", "exec sleep 1000 >&- 2>&-"}, -1);
  REQUIRE(child.has_value());
  pollfd end{child->ended(), POLLIN, 0};
  CHECK(::poll(&end, 1, 0) == 0);
  child->kill_group();
  CHECK(::poll(&end, 1, 30000) == 1);
  CHECK(child->try_wait().has_value());

  EvaluatorProcess process = shell("exec 3>&- >&- 2>&-; sleep 1000");
  REQUIRE(process.start().has_value());
  std::vector<EvaluatorEvent> events;
  while (process.running() && events.empty()) {
    std::vector<pollfd> descriptors;
    process.add_descriptors(descriptors);
    REQUIRE(::poll(descriptors.data(), descriptors.size(), 30000) > 0);
    events = process.poll();
  }
  CHECK(std::get<Exited>(events.at(0)).ended_by_us);
}

TEST_CASE("a program that does not exist is an error of start, with its name") {
  EvaluatorProcess process({"/no/such/evaluator"});

  const Status started = process.start();

  REQUIRE_FALSE(started.has_value());
  CHECK(started.error().message.find("/no/such/evaluator") != std::string::npos);
}

TEST_CASE("a closed channel means the evaluator is of no use: it is ended") {
  EvaluatorProcess process = shell("exec 3>&-; exec sleep 1000");
  REQUIRE(process.start().has_value());

  const auto events = wait_for(process, 1);

  REQUIRE(events.size() == 1);
  const auto* const exited = std::get_if<Exited>(&events[0]);
  REQUIRE(exited != nullptr);
  CHECK(exited->signal == SIGKILL);
  CHECK(exited->ended_by_us);
  CHECK(exited->evidence.find("this agent killed it") != std::string::npos);
}

TEST_CASE("what somebody else kills is not told as killed by this side") {
  EvaluatorProcess process = shell("kill -KILL $$");
  REQUIRE(process.start().has_value());

  const auto events = wait_for(process, 1);

  REQUIRE(events.size() == 1);
  CHECK(std::get<Exited>(events[0]).signal == SIGKILL);
  CHECK_FALSE(std::get<Exited>(events[0]).ended_by_us);
}

TEST_CASE("EVALCAR_EVALUATOR names the evaluator, and a wrong name is told") {
  ::setenv("EVALCAR_EVALUATOR", "/bin/sh", 1);
  CHECK(find_evaluator(RealFileSystem()).value() == "/bin/sh");
  ::setenv("EVALCAR_EVALUATOR", "/no/such/program", 1);
  CHECK_FALSE(find_evaluator(RealFileSystem()).has_value());
  ::unsetenv("EVALCAR_EVALUATOR");
}
