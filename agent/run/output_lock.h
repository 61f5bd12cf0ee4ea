// One agent an output directory: `_evalcar/lock`, held as long as the object lives.
//
// Where flock works it decides, and the kernel gives it up with the process. Where it does not
// (some network file systems) the file's content does: a record of who owns the directory, whose
// mtime the owner renews every kRenewal. It is stale when its process is known to be dead (same
// machine) or it was not renewed for kLease; the successor replaces the file.
//
// An owner that was only asleep (SIGSTOP, a laptop's lid, a mount that hung) learns of it by
// check(): the record on disk is not his any more, his fencing token is void. So check() comes
// right before whatever must not be done by two, after the file that is written to was opened; and
// whoever takes a directory over from an owner that may wake up replaces that file
// (replaced_living()), so that a write that was under way goes to a file that nobody reads.
#pragma once

#include <chrono>
#include <string>

#include "agent/supervise/child_process.h"
#include "store/base/result.h"

namespace evalcar::run {

/// Not thread-safe.
class OutputLock {
 public:
  static constexpr std::chrono::seconds kRenewal{2};
  static constexpr std::chrono::seconds kLease{6};

  /// Takes `path`, made if needed, and writes who we are into it. `shared`: other machines may see
  /// the file, and their flock need not be ours. kUnavailable names the owner (pid, host, since);
  /// kIo, kNotFound: there can be no lock here (read-only, no permission). At most about a second.
  static Result<OutputLock> take(const std::string& path, bool shared);

  OutputLock(OutputLock&&) = default;
  OutputLock& operator=(OutputLock&&) = default;
  /// Gives it up, unless it is somebody else's by now.
  ~OutputLock();

  /// Whether the record on disk is still ours. kUnavailable: somebody took the directory over;
  /// names him. kNotFound: the file was removed (take it again). kIo: cannot be told now.
  Status check() const;
  /// The record has to be renewed every kRenewal: another agent may go by its age.
  bool needs_renewal() const { return renewed_; }
  void renew() const;
  /// The record was taken over from an owner that was not known to be dead.
  bool replaced_living() const { return replaced_living_; }

 private:
  OutputLock(std::string path, supervise::OwnedFd fd, std::string record)
      : path_(std::move(path)), fd_(std::move(fd)), record_(std::move(record)) {}

  std::string path_;
  supervise::OwnedFd fd_;
  std::string record_;  ///< what we wrote
  bool renewed_ = false;
  bool replaced_living_ = false;
};

}  // namespace evalcar::run
