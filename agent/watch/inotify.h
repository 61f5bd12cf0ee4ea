// The kernel's notices of changes on local file systems.
#pragma once

#include <map>
#include <string>

#include "agent/watch/notifier.h"
#include "store/base/file_system.h"

namespace evalcar::watch {

class Inotify final : public Notifier {
 public:
  /// Where the kernel gives no instance (limits), it watches nothing, says so in the log, and asks
  /// again with each watch(). `files` must outlive it: folders are named to the kernel as it asks.
  explicit Inotify(const FileSystem& files);
  ~Inotify() override;
  Inotify(const Inotify&) = delete;
  Inotify& operator=(const Inotify&) = delete;

  bool watch(const std::string& folder) override;
  void unwatch(const std::string& folder) override;
  Hints take() override;
  int descriptor() const override { return fd_; }
  std::string trouble() const override { return trouble_; }

 private:
  bool open();
  void note_trouble(const std::string& trouble);

  const FileSystem& files_;
  int fd_ = -1;
  std::map<std::string, int> watch_of_folder_;
  std::map<int, std::string> folder_of_watch_;
  std::string trouble_;
  std::set<std::string> told_;
};

}  // namespace evalcar::watch
