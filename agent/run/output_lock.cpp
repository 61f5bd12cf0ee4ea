#include "agent/run/output_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "store/base/dying_holder.h"

namespace evalcar::run {
namespace {

std::string who_we_are() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return "pid " + std::to_string(::getpid()) + " on " + host.data();
}

std::string first_line(int fd) {
  std::array<char, 300> text{};
  const ssize_t n = ::pread(fd, text.data(), text.size() - 1, 0);
  std::string line(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  line.resize(std::min(line.size(), line.find('\n')));
  for (char& c : line) c = static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return line.empty() ? "somebody" : line;
}

}  // namespace

Result<OutputLock> OutputLock::take(const std::string& path) {
  supervise::OwnedFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (fd.get() < 0) return errno_error("lock", path, errno);
  int error = 0;
  const bool ended = outlast_dying_holder([&] {
    error = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    return error != EWOULDBLOCK;
  });
  if (error != 0) {
    if (ended) return errno_error("lock", path, error);
    return make_error(ErrorCode::kUnavailable,
                      path + ": another evalcar works here: " + first_line(fd.get()));
  }
  const std::string text = who_we_are() + "\n";
  if (::ftruncate(fd.get(), 0) != 0 ||
      ::pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return errno_error("write", path, errno);
  }
  return OutputLock(std::move(fd));
}

}  // namespace evalcar::run
