#include "agent/http/listening_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "store/base/file_system.h"

namespace evalcar::http {

using supervise::OwnedFd;

namespace {

constexpr int kBacklog = 512;

}  // namespace

Result<OwnedFd> listen_on(const Endpoint& endpoint, std::uint16_t& port) {
  sockaddr_storage storage{};
  const auto& bytes = endpoint.address.bytes;
  const bool v4 = endpoint.address.text().find(':') == std::string::npos;
  socklen_t length = 0;
  if (v4) {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(endpoint.port);
    std::memcpy(&four.sin_addr, bytes.data() + 12, 4);
    std::memcpy(&storage, &four, length = sizeof four);
  } else {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(endpoint.port);
    std::memcpy(&six.sin6_addr, bytes.data(), bytes.size());
    std::memcpy(&storage, &six, length = sizeof six);
  }
  const std::string where = endpoint.address.text() + " port " + std::to_string(endpoint.port);
  OwnedFd fd(::socket(v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return errno_error("socket", where, errno);
  const int on = 1;
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  auto* const address = reinterpret_cast<sockaddr*>(&storage);  // as POSIX wants it
  if (::bind(fd.get(), address, length) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) {
      return make_error(ErrorCode::kUnavailable, where + ": somebody else listens there");
    }
    return errno_error("listen", where, errno);
  }
  if (::getsockname(fd.get(), address, &length) == 0) {
    sockaddr_in any{};
    std::memcpy(&any, &storage, sizeof any);
    port = ntohs(any.sin_port);  // at the same place in both kinds
  }
  return fd;
}

namespace {

Status check_socket_folder(const std::string& path) {
  const std::string folder = parent_path(path);
  struct stat info{};
  if (::stat(folder.c_str(), &info) != 0) return errno_error("stat", folder, errno);
  const bool sticky = (info.st_mode & S_ISVTX) != 0;
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !sticky) {
    return make_error(ErrorCode::kInvalidArgument,
                      "server.unix_socket: others may write to " + folder +
                          ", so they could put a socket of theirs in its place");
  }
  return {};
}

/// A socket that nobody listens on any more is removed.
Status clear_place(const std::string& path, const sockaddr_un& address) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? Status() : errno_error("lstat", path, errno);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "server.unix_socket: " + path + " is another kind of file; it stays");
  }
  const OwnedFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (probe.get() < 0) return errno_error("socket", path, errno);
  const auto* const target = reinterpret_cast<const sockaddr*>(&address);  // as POSIX wants it
  if (::connect(probe.get(), target, sizeof address) == 0 || errno == EAGAIN) {
    return make_error(ErrorCode::kUnavailable,
                      "server.unix_socket: " + path + ": somebody else answers there");
  }
  // Whatever else went wrong does not show that nobody listens.
  if (errno != ECONNREFUSED) return errno_error("connect", path, errno);
  if (::unlink(path.c_str()) != 0) return errno_error("unlink", path, errno);
  return {};
}

}  // namespace

Result<OwnedFd> listen_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return make_error(ErrorCode::kInvalidArgument,
                      "server.unix_socket: " + path + ": longer than the kernel takes");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  EVALCAR_RETURN_IF_ERROR(check_socket_folder(path));
  EVALCAR_RETURN_IF_ERROR(clear_place(path, address));
  OwnedFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return errno_error("socket", path, errno);
  const auto* const target = reinterpret_cast<const sockaddr*>(&address);  // as POSIX wants it
  if (::bind(fd.get(), target, sizeof address) != 0) return errno_error("bind", path, errno);
  // Who may connect is decided by the peer's uid, not by the file's mode.
  if (::chmod(path.c_str(), 0666) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return errno_error("listen", path, errno);
  }
  return fd;
}

void notice_vanished_peer(int fd, std::chrono::milliseconds patience) {
  using std::chrono::seconds;
  const auto set = [fd](int level, int option, auto value) {
    const int number = static_cast<int>(value);
    (void)::setsockopt(fd, level, option, &number, sizeof number);
  };
  const auto idle = std::max(std::chrono::ceil<seconds>(patience / 2), seconds{1});
  const auto pause = std::max(std::chrono::ceil<seconds>(patience / 6), seconds{1});
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, idle.count());
  set(IPPROTO_TCP, TCP_KEEPINTVL, pause.count());
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, patience.count());
}

}  // namespace evalcar::http
