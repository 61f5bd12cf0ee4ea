// The lock of a folder whose file system may not answer: taken, checked and dropped in bounded
// time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/run/output_lock.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::run {

/// Not thread-safe; both references must outlive it.
class FolderLock {
 public:
  /// What was asked of a lock.
  struct Answer {
    Status asked;  ///< not good: the file system did not answer, so that nothing is known
    Status lock;   ///< of OutputLock's call
  };

  FolderLock(const FileSystem& files, const Clock& clock) : files_(files), clock_(clock) {}
  ~FolderLock() { drop(); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool held() const { return lock_ != nullptr; }
  /// OutputLock::take() of `<folder>/lock`, unless it is held.
  Answer take(const std::string& folder);
  /// OutputLock::check(), which renews the record, too, where that is needed. Good if none is held.
  Answer check();
  /// When it was last taken or checked.
  MonotonicTime checked_at() const { return checked_at_; }
  /// When it has to be checked at the latest; absent: never.
  std::optional<MonotonicTime> renewal_due() const;
  /// Only while held: OutputLock::replaced_living().
  bool replaced_living() const { return lock_->replaced_living(); }
  /// Waits for no file system: the lock goes when that one answers, or with the process.
  void drop();

 private:
  const FileSystem& files_;
  const Clock& clock_;
  std::string folder_;
  std::shared_ptr<const OutputLock> lock_;  ///< asked only through files_.perform()
  MonotonicTime checked_at_{};
};

}  // namespace evalcar::run
