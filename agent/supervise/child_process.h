// A child in a session of its own, at low priority, that cannot outlive us.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "store/base/result.h"

namespace evalcar::supervise {

/// An open descriptor, closed at the end.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  ~OwnedFd() { reset(); }
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  int get() const { return fd_; }
  int release();
  void reset();

 private:
  int fd_;
};

/// How a process ended, in words: "exit code 3", "signal 9 (Killed)".
std::string describe_wait_status(int status);

/// Destroying it kills the whole group and reaps the child: within two seconds, or, if the child
/// hangs in the kernel (storage that does not answer), later and in the background. Not
/// thread-safe.
class ChildProcess {
 public:
  /// Starts argv[0] (a path, or a name on PATH). The child has `channel` as descriptor 3 (none if
  /// < 0), no standard input, and both standard output and error on the pipe output(), which does
  /// not block. It leaves no core, is the first to go when memory runs out, knows no rank variable
  /// (child_environment.h), and is killed when the calling thread ends. An error tells why exec
  /// failed.
  static Result<ChildProcess> spawn(const std::vector<std::string>& argv, int channel);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  int output() const { return output_.get(); }
  /// Readable once the child has ended; -1 where the kernel has no such descriptors (before 5.3).
  int ended() const { return ended_.get(); }
  /// The wait status if the child has ended; what is left of its group is killed then.
  std::optional<int> try_wait();
  /// It is on its way out, by exit or by a signal, whatever is sent to it now.
  bool is_exiting() const;
  /// SIGKILL to the whole group.
  void kill_group() const;

 private:
  ChildProcess(pid_t pid, OwnedFd output);
  void end();

  pid_t pid_ = -1;  ///< also the group's id; -1 once reaped
  OwnedFd output_;
  OwnedFd ended_;
};

/// Reads what is there, without blocking, up to `limit` bytes. Sets `ended` at the end of the
/// stream.
std::string read_available(int fd, std::size_t limit, bool& ended);

}  // namespace evalcar::supervise
