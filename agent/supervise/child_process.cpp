#include "agent/supervise/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <string_view>
#include <thread>
#include <utility>

#include "agent/supervise/child_environment.h"
#include "store/base/io_priority.h"

namespace evalcar::supervise {
namespace {

constexpr int kChannelFd = 3;
constexpr std::chrono::seconds kReapPatience{2};
constexpr const char* kOomScore = "/proc/self/oom_score_adj";
constexpr int kLeastOomScore = 500;  // of -1000 to 1000
constexpr int kLeastNice = 10;
constexpr const char* kAutogroup = "/proc/self/autogroup";

/// What the child is made of, ready before fork: after it only system calls are safe.
struct Start {
  std::vector<char*> argv;
  std::vector<char*> environment;
  std::string oom_score;
  int channel = -1;
  int output = -1;
  int failure = -1;
  pid_t parent = -1;
};

/// When memory runs out, the evaluator goes first, not the trainer. Never lower than our own, which
/// a container may have set high for the trainer, too.
std::string oom_score() {
  int own = 0;
  std::array<char, 16> text{};
  if (const OwnedFd fd(::open(kOomScore, O_RDONLY | O_CLOEXEC)); fd.get() >= 0) {
    const ssize_t n = ::read(fd.get(), text.data(), text.size());
    if (n > 0) std::from_chars(text.data(), text.data() + n, own);
  }
  return std::to_string(std::max(own, kLeastOomScore));
}

/// Where the kernel groups by sessions (sched(7), "The autogroup feature"), niceness counts within
/// a session only, and each session has as much of the processor as the trainer's. It takes a
/// change a tenth of a second on the whole machine.
void yield_to_sessions(int nice) {
  const OwnedFd fd(::open(kAutogroup, O_WRONLY | O_CLOEXEC));
  if (fd.get() < 0) return;
  std::array<char, 16> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), nice).ptr;
  const timespec pause{0, 50'000'000};
  for (int turn = 0; turn < 10; ++turn) {
    if (::write(fd.get(), text.data(), static_cast<std::size_t>(end - text.data())) >= 0) return;
    if (errno != EAGAIN) return;
    ::nanosleep(&pause, nullptr);
  }
}

/// All descriptors from `first` on but `kept`. Exec would close them, too, but what comes before it
/// takes its time, and until then a killed agent's socket and locks would live on in its child.
/// Where the kernel cannot (before 5.9), it is left to exec.
void close_others(unsigned first, unsigned kept) {
  if (kept > first) ::syscall(SYS_close_range, first, kept - 1, 0);
  ::syscall(SYS_close_range, kept + 1, ~0U, 0);
}

[[noreturn]] void become_child(const Start& start) {
  ::setsid();  // a process group of its own, too
  // The kernel ends us with our parent, even if it is killed -9; the check closes the race.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != start.parent) ::_exit(127);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  ::dup2(start.output, STDOUT_FILENO);
  ::dup2(start.output, STDERR_FILENO);
  // All others of ours are close-on-exec; dup2 clears that flag, unless source and target agree.
  if (start.channel >= 0 && start.channel != kChannelFd) ::dup2(start.channel, kChannelFd);
  if (start.channel == kChannelFd) ::fcntl(start.channel, F_SETFD, 0);
  close_others(start.channel < 0 ? kChannelFd : kChannelFd + 1,
               static_cast<unsigned>(start.failure));

  const int nice = std::max(::getpriority(PRIO_PROCESS, 0), kLeastNice);
  ::setpriority(PRIO_PROCESS, 0, nice);
  yield_to_sessions(nice);
  // The unit's idle class is inherited, and is less still.
  if (io_priority().io_class != IoPriority::Class::kIdle) {
    set_io_priority({IoPriority::Class::kBestEffort, 7});
  }
  // A core of tens of GB would fill the trainer's disk.
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  if (const int fd = ::open(kOomScore, O_WRONLY | O_CLOEXEC); fd >= 0) {
    [[maybe_unused]] const ssize_t n = ::write(fd, start.oom_score.data(), start.oom_score.size());
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGPIPE, SIGHUP, SIGINT, SIGTERM, SIGCHLD}) ::signal(signal, SIG_DFL);

  ::execvpe(start.argv[0], start.argv.data(), start.environment.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(start.failure, &error, sizeof error);
  ::_exit(127);
}

/// As exec wants it. The texts must outlive it.
std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// A pipe with both ends close-on-exec, moved above the standard descriptors and the channel's, so
/// that the child's dup2 calls cannot hit them.
Status make_pipe(OwnedFd& reader, OwnedFd& writer) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error("pipe", "evaluator", errno);
  const OwnedFd first(ends[0]);
  const OwnedFd second(ends[1]);
  reader = OwnedFd(::fcntl(first.get(), F_DUPFD_CLOEXEC, 10));
  writer = OwnedFd(::fcntl(second.get(), F_DUPFD_CLOEXEC, 10));
  if (reader.get() < 0 || writer.get() < 0) return errno_error("dup", "evaluator", errno);
  return {};
}

}  // namespace

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}
int OwnedFd::release() { return std::exchange(fd_, -1); }
void OwnedFd::reset() {
  if (fd_ >= 0) ::close(release());
}

std::string describe_wait_status(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return "signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
  }
  return "exit code " + std::to_string(WEXITSTATUS(status));
}

Result<ChildProcess> ChildProcess::spawn(const std::vector<std::string>& argv, int channel) {
  OwnedFd output_reader;
  OwnedFd output_writer;
  OwnedFd failure_reader;
  OwnedFd failure_writer;
  EVALCAR_RETURN_IF_ERROR(make_pipe(output_reader, output_writer));
  EVALCAR_RETURN_IF_ERROR(make_pipe(failure_reader, failure_writer));
  ::fcntl(output_reader.get(), F_SETFL, O_NONBLOCK);

  const std::vector<std::string> environment = child_environment(::environ);
  const Start start{pointers_to(argv),   pointers_to(environment), oom_score(), channel,
                    output_writer.get(), failure_writer.get(),     ::getpid()};
  ::signal(SIGCHLD, SIG_DFL);  // ignored, as some parents leave it, no child can be waited for
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("fork", argv[0], errno);
  if (pid == 0) become_child(start);
  ChildProcess child(pid, std::move(output_reader));

  failure_writer.reset();
  // The pipe closes without a word when exec succeeds: the child's group is there by then.
  int error = 0;
  ssize_t n = 0;
  while ((n = ::read(failure_reader.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (n == sizeof error) return errno_error("start", argv[0], error);
  return child;
}

ChildProcess::ChildProcess(pid_t pid, OwnedFd output)
    : pid_(pid),
      output_(std::move(output)),
      ended_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::move(other.output_)),
      ended_(std::move(other.ended_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, -1);
    output_ = std::move(other.output_);
    ended_ = std::move(other.ended_);
  }
  return *this;
}

ChildProcess::~ChildProcess() { end(); }

void ChildProcess::end() {
  if (pid_ < 0) return;
  kill_group();
  const pid_t pid = std::exchange(pid_, -1);
  const auto reaped = [pid](int flags) {
    pid_t ended = 0;
    while ((ended = ::waitpid(pid, nullptr, flags)) < 0 && errno == EINTR) {
    }
    return ended != 0;
  };
  const auto patience = std::chrono::steady_clock::now() + kReapPatience;
  while (!reaped(WNOHANG)) {
    if (std::chrono::steady_clock::now() >= patience) {
      std::thread([reaped] { (void)reaped(0); }).detach();
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void ChildProcess::kill_group() const {
  if (pid_ > 0) ::kill(-pid_, SIGKILL);
}

bool ChildProcess::is_exiting() const {
  if (pid_ < 0) return false;
  constexpr unsigned long kExiting = 0x4;  // PF_EXITING of the kernel's sched.h
  constexpr int kFlagsField = 7;           // of proc(5), counted behind the name's parenthesis
  const OwnedFd fd(
      ::open(("/proc/" + std::to_string(pid_) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text{};
  const ssize_t size = fd.get() < 0 ? -1 : ::read(fd.get(), text.data(), text.size());
  if (size <= 0) return false;
  std::string_view rest(text.data(), static_cast<std::size_t>(size));
  rest.remove_prefix(std::min(rest.rfind(')') + 1, rest.size()));
  for (int field = 0; field < kFlagsField; ++field) {
    rest.remove_prefix(std::min(rest.find(' ') + 1, rest.size()));
  }
  unsigned long flags = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), flags);
  return (flags & kExiting) != 0;
}

std::optional<int> ChildProcess::try_wait() {
  if (pid_ < 0) return std::nullopt;
  siginfo_t info{};
  // WNOWAIT leaves the zombie: its group's id cannot be given to strangers while we kill the rest.
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return std::nullopt;
  }
  kill_group();
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

std::string read_available(int fd, std::size_t limit, bool& ended) {
  std::string bytes;
  std::array<char, 65536> piece{};
  while (bytes.size() < limit) {
    const ssize_t n = ::read(fd, piece.data(), piece.size());
    if (n > 0) {
      bytes.append(piece.data(), static_cast<std::size_t>(n));
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else {
      if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) ended = true;
      break;
    }
  }
  return bytes;
}

}  // namespace evalcar::supervise
