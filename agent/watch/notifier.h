// Hints that something changed in a folder. They may be late, lost, or for nothing: whoever gets
// one looks at the disk.
#pragma once

#include <set>
#include <string>

namespace evalcar::watch {

/// Not thread-safe.
class Notifier {
 public:
  struct Hints {
    std::set<std::string> folders;  ///< watched folders in which something changed
    bool overflowed = false;        ///< hints were lost: look at everything
  };

  virtual ~Notifier() = default;
  /// Watches one folder (not what is below it). Watching again follows the name, if it leads to
  /// another folder by now. False: it cannot be watched (gone, or the system's limit): polling has
  /// to do.
  virtual bool watch(const std::string& folder) = 0;
  virtual void unwatch(const std::string& folder) = 0;
  /// The hints since the last call, without blocking.
  virtual Hints take() = 0;
  /// Readable when hints are there; -1: there are none now.
  virtual int descriptor() const = 0;
  /// Why hints are missing, in words; "" where every folder that was asked for is watched.
  virtual std::string trouble() const { return ""; }
};

}  // namespace evalcar::watch
