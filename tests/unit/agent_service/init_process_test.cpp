// Real processes; each test forks, so that the test program itself stays what it is.
#include "agent/service/init_process.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <csignal>

using namespace evalcar::agent_service;

namespace {

/// Becomes an init in a new process, runs `work` as its child, and gives that init's pid.
template <typename Work>
pid_t start_init(const Work& work) {
  const pid_t init = ::fork();
  if (init != 0) return init;
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans come to it, as they come to process 1
  const auto code = become_init();
  ::_exit(code.has_value() ? *code : work());
}

int wait_for(pid_t pid) {
  int status = -1;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return status;
}

}  // namespace

TEST_CASE("an init ends with the code of its child, or 128 and the signal") {
  const int exited = wait_for(start_init([] { return 4; }));
  CHECK(WIFEXITED(exited));
  CHECK(WEXITSTATUS(exited) == 4);

  const int killed = wait_for(start_init([] {
    ::raise(SIGKILL);
    return 0;
  }));
  CHECK(WEXITSTATUS(killed) == 128 + SIGKILL);
}

TEST_CASE("an init hands SIGTERM on, whenever it comes") {
  const pid_t init = start_init([] {
    sigset_t term;
    ::sigemptyset(&term);
    ::sigaddset(&term, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &term, nullptr);
    ::kill(::getppid(), SIGTERM);  // at once
    int signal = 0;
    (void)::sigwait(&term, &signal);
    return signal == SIGTERM ? 7 : 1;
  });
  CHECK(WEXITSTATUS(wait_for(init)) == 7);
}

TEST_CASE("an init buries orphans that are handed to it") {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t init = start_init([&pipe] {
    const pid_t between = ::fork();
    if (between == 0) {
      const pid_t orphan = ::fork();
      if (orphan == 0) {
        ::usleep(5000);  // ends as an orphan
        ::_exit(0);
      }
      [[maybe_unused]] const ssize_t told = ::write(pipe[1], &orphan, sizeof orphan);
      ::_exit(0);
    }
    int status = 0;
    (void)::waitpid(between, &status, 0);
    pid_t orphan = 0;
    if (::read(pipe[0], &orphan, sizeof orphan) != sizeof orphan) return 1;
    for (int tries = 0; tries < 2000; ++tries) {  // it is gone once nobody answers to its number
      if (::kill(orphan, 0) != 0) return 0;
      ::usleep(1000);
    }
    return 2;
  });
  CHECK(WEXITSTATUS(wait_for(init)) == 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
}
