#include "agent/watch/inotify.h"

#include <spdlog/spdlog.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace evalcar::watch {
namespace {

/// No IN_MODIFY: a growing file says nothing that its closing does not say better.
constexpr std::uint32_t kMask = IN_CREATE | IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM |
                                IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;

}  // namespace

Inotify::Inotify(const FileSystem& files) : files_(files) { open(); }

Inotify::~Inotify() {
  if (fd_ >= 0) ::close(fd_);
}

/// Said once: under a limit, watches come and go.
void Inotify::note_trouble(const std::string& trouble) {
  trouble_ = trouble;
  if (!trouble.empty() && told_.insert(trouble).second) {
    spdlog::warn("{}: changes are found by polling", trouble);
  }
}

bool Inotify::open() {
  if (fd_ >= 0) return true;
  fd_ = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd_ < 0) {
    note_trouble(std::string("no inotify instance (") + std::strerror(errno) +
                 "; fs.inotify.max_user_instances)");
  } else {
    note_trouble("");
  }
  return fd_ >= 0;
}

bool Inotify::watch(const std::string& folder) {
  if (!open()) return false;
  // Asked again each time: by a link, or a link above it, the name may lead to another folder now.
  const auto told = std::make_shared<std::pair<int, int>>(-1, 0);  // the watch, errno
  const Status asked = files_.perform(folder, [fd = fd_, folder, told]() -> Status {
    told->first = ::inotify_add_watch(fd, folder.c_str(), kMask);
    told->second = told->first < 0 ? errno : 0;
    return {};
  });
  const auto before = watch_of_folder_.find(folder);
  if (!asked.has_value()) return before != watch_of_folder_.end();
  const int watch = told->first;
  if (before != watch_of_folder_.end()) {
    if (before->second == watch) return true;
    unwatch(folder);
  }
  if (watch < 0) {
    if (told->second == ENOSPC) note_trouble("fs.inotify.max_user_watches is reached");
    return false;
  }
  note_trouble("");
  // The same folder under another name (a link) gives the same watch: the newest name wins.
  if (const auto known = folder_of_watch_.find(watch); known != folder_of_watch_.end()) {
    watch_of_folder_.erase(known->second);
  }
  watch_of_folder_[folder] = watch;
  folder_of_watch_[watch] = folder;
  return true;
}

void Inotify::unwatch(const std::string& folder) {
  const auto found = watch_of_folder_.find(folder);
  if (found == watch_of_folder_.end()) return;
  ::inotify_rm_watch(fd_, found->second);
  folder_of_watch_.erase(found->second);
  watch_of_folder_.erase(found);
}

Notifier::Hints Inotify::take() {
  Hints hints;
  if (fd_ < 0) return hints;
  alignas(inotify_event) std::array<char, 16384> buffer{};
  // Bounded: under a storm of events the rest waits for the next turn.
  for (int reads = 0; reads < 64; ++reads) {
    const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
    if (n <= 0) break;
    for (ssize_t at = 0; at < n;) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof event);
      at += static_cast<ssize_t>(sizeof event + event.len);
      if ((event.mask & IN_Q_OVERFLOW) != 0) hints.overflowed = true;
      const auto folder = folder_of_watch_.find(event.wd);
      if (folder == folder_of_watch_.end()) continue;
      hints.folders.insert(folder->second);
      if ((event.mask & IN_IGNORED) != 0) {  // removed: a folder of that name is watched anew
        watch_of_folder_.erase(folder->second);
        folder_of_watch_.erase(folder);
      } else if ((event.mask & (IN_MOVE_SELF)) != 0) {
        unwatch(std::string(folder->second));
      }
    }
  }
  return hints;
}

}  // namespace evalcar::watch
