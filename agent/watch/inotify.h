// The kernel's notices of changes on local file systems.
#pragma once

#include <map>
#include <string>

#include "agent/watch/notifier.h"

namespace evalcar::watch {

class Inotify final : public Notifier {
 public:
  /// Where the kernel gives no instance (limits), it watches nothing, and says so in the log.
  Inotify();
  ~Inotify() override;
  Inotify(const Inotify&) = delete;
  Inotify& operator=(const Inotify&) = delete;

  bool watch(const std::string& folder) override;
  void unwatch(const std::string& folder) override;
  Hints take() override;
  int descriptor() const override { return fd_; }

 private:
  int fd_ = -1;
  std::map<std::string, int> watch_of_folder_;
  std::map<int, std::string> folder_of_watch_;
  bool limit_told_ = false;
};

}  // namespace evalcar::watch
