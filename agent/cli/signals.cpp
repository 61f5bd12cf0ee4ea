#include "agent/cli/signals.h"

#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <utility>

namespace evalcar::cli {
namespace {

/// What batch systems and timers send to every process of a job (Slurm: USR1 before its end).
constexpr std::array<int, 2> kOfOthers = {SIGUSR1, SIGALRM};

}  // namespace

Signals::Signals(Hangup hangup) : hangup_(hangup) {
  struct sigaction before{};
  ::sigaction(SIGHUP, nullptr, &before);
  hangup_ignored_ = before.sa_handler == SIG_IGN;
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  ::sigemptyset(&set);
  // A write beyond a limit (ulimit -f) fails then, and is said as any other.
  ::signal(SIGXFSZ, SIG_IGN);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&set, signal);
  if (hangup == Hangup::kReloads) {
    for (const int signal : kOfOthers) ::sigaddset(&set, signal);
    ::sigaddset(&set, SIGUSR2);
  }
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  fd_ = supervise::OwnedFd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

Signals::Told Signals::take() {
  Told told = Told::kNothing;
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == sizeof info) {
    // Ignored ones come, too: a signal that is blocked waits for whoever reads it.
    const auto signal = static_cast<int>(info.ssi_signo);
    if (std::find(kOfOthers.begin(), kOfOthers.end(), signal) != kOfOthers.end()) {
      if (ignored_.insert(signal).second) {
        spdlog::warn("signal {} came, which means nothing here: it is ignored",
                     ::sigabbrev_np(signal));
      }
      continue;
    }
    if (signal == SIGUSR2) {
      rest_asked_ = true;
      continue;
    }
    if (info.ssi_signo == SIGHUP && hangup_ == Hangup::kStops && hangup_ignored_) continue;
    if (info.ssi_signo != SIGHUP || hangup_ == Hangup::kStops) {
      told = Told::kStop;
    } else if (told == Told::kNothing) {
      told = Told::kReload;
    }
  }
  if (told == Told::kNothing && std::exchange(rest_asked_, false)) told = Told::kRest;
  return told;
}

bool Signals::stop_pending() {
  sigset_t pending;
  ::sigemptyset(&pending);
  ::sigpending(&pending);
  return ::sigismember(&pending, SIGTERM) == 1 || ::sigismember(&pending, SIGINT) == 1;
}

}  // namespace evalcar::cli
