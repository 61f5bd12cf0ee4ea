#include "agent/service/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace evalcar::agent_service {
namespace {

std::string numbered(const std::string& path, int number) {
  return path + "." + std::to_string(number);
}

}  // namespace

Result<std::unique_ptr<LogFile>> LogFile::open(LogFileOptions options) {
  std::unique_ptr<LogFile> file(new LogFile(std::move(options)));
  EVALCAR_RETURN_IF_ERROR(file->open_now());
  return file;
}

LogFile::~LogFile() { close_now(); }

void LogFile::close_now() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

/// Not blocking: a pipe without a reader is refused, not waited for.
Status LogFile::open_now() {
  const int fd = ::open(options_.path.c_str(),
                        O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0640);
  if (fd < 0) return errno_error("open", options_.path, errno);
  struct stat info{};
  const bool known = ::fstat(fd, &info) == 0;
  if (!known || (!S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode))) {
    ::close(fd);
    return make_error(ErrorCode::kInvalidArgument, options_.path + ": is no file");
  }
  close_now();
  fd_ = fd;
  return {};
}

void LogFile::write(std::string_view lines) {
  follow_name();
  rotate_before(lines.size());
  const auto count = static_cast<std::uint64_t>(std::count(lines.begin(), lines.end(), '\n'));
  if (torn_ && append("\n")) torn_ = false;
  if (lost_ > 0 && !torn_) {
    const std::string note =
        std::to_string(lost_) + " lines of the log are missing here: " + trouble_ + "\n";
    if (append(note)) lost_ = 0;
  }
  if (torn_ || lost_ > 0 || !append(lines)) lost_ += count;
}

/// One look at the name a line is cheap, and nothing can be lost between two looks.
void LogFile::follow_name() {
  struct stat named{};
  struct stat held{};
  const bool same = fd_ >= 0 && ::stat(options_.path.c_str(), &named) == 0 &&
                    ::fstat(fd_, &held) == 0 && named.st_dev == held.st_dev &&
                    named.st_ino == held.st_ino;
  if (same) return;
  const Status opened = open_now();  // else the lines go where they went, under another name
  if (!opened.has_value()) {
    trouble_ = opened.error().message;
  } else {
    torn_ = false;
  }
}

void LogFile::rotate_before(std::size_t bytes) {
  struct stat held{};
  if (fd_ < 0 || options_.max_bytes == 0 || ::fstat(fd_, &held) != 0 || !S_ISREG(held.st_mode) ||
      held.st_size == 0 || static_cast<std::uint64_t>(held.st_size) + bytes <= options_.max_bytes) {
    return;
  }
  for (int number = options_.kept; number > 1; --number) {
    (void)std::rename(numbered(options_.path, number - 1).c_str(),
                      numbered(options_.path, number).c_str());
  }
  const bool moved = options_.kept > 0 ? std::rename(options_.path.c_str(),
                                                     numbered(options_.path, 1).c_str()) == 0
                                       : ::ftruncate(fd_, 0) == 0;
  if (moved) follow_name();
}

bool LogFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = fd_ < 0 ? -1 : ::write(fd_, bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
      torn_ = !bytes.empty();
    } else if (fd_ >= 0 && written < 0 && errno == EINTR) {
      continue;
    } else {
      if (fd_ >= 0) trouble_ = std::strerror(written == 0 ? ENOSPC : errno);
      return false;
    }
  }
  torn_ = false;
  return true;
}

}  // namespace evalcar::agent_service
