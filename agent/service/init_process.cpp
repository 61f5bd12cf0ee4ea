#include "agent/service/init_process.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace evalcar::agent_service {
namespace {

constexpr int kHandedOn[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

/// Buries everybody who has ended; the exit code once that is the child.
std::optional<int> bury(pid_t child) {
  std::optional<int> code;
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(-1, &status, WNOHANG)) > 0 || (ended < 0 && errno == EINTR)) {
    if (ended == child) code = exit_code_of(status);
  }
  return code;
}

int serve_as_init(pid_t child, const sigset_t& awaited) {
  while (true) {
    if (const auto code = bury(child); code.has_value()) return *code;
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&awaited, &info);
    if (signal > 0 && signal != SIGCHLD) ::kill(child, signal);
  }
}

}  // namespace

std::optional<int> become_init_if_first() { return ::getpid() == 1 ? become_init() : std::nullopt; }

std::optional<int> become_init() {
  sigset_t awaited;
  sigset_t before;
  ::sigemptyset(&awaited);
  ::sigaddset(&awaited, SIGCHLD);
  for (const int signal : kHandedOn) ::sigaddset(&awaited, signal);
  // Blocked before the fork: none is lost between it and the first wait.
  ::sigprocmask(SIG_BLOCK, &awaited, &before);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child > 0) return serve_as_init(child, awaited);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return std::nullopt;  // no process left: it goes on without an init
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  return std::nullopt;
}

}  // namespace evalcar::agent_service
