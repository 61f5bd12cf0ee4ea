#include "agent/cli/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

namespace evalcar::cli {

Signals::Signals(Hangup hangup) : hangup_(hangup) {
  struct sigaction before{};
  ::sigaction(SIGHUP, nullptr, &before);
  hangup_ignored_ = before.sa_handler == SIG_IGN;
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&set, signal);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  fd_ = supervise::OwnedFd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

Signals::Told Signals::take() {
  Told told = Told::kNothing;
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == sizeof info) {
    // Ignored ones come, too: a signal that is blocked waits for whoever reads it.
    if (info.ssi_signo == SIGHUP && hangup_ == Hangup::kStops && hangup_ignored_) continue;
    if (info.ssi_signo != SIGHUP || hangup_ == Hangup::kStops) {
      told = Told::kStop;
    } else if (told == Told::kNothing) {
      told = Told::kReload;
    }
  }
  return told;
}

bool Signals::stop_pending() {
  sigset_t pending;
  ::sigemptyset(&pending);
  ::sigpending(&pending);
  return ::sigismember(&pending, SIGTERM) == 1 || ::sigismember(&pending, SIGINT) == 1;
}

}  // namespace evalcar::cli
