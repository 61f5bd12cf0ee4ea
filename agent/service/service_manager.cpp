#include "agent/service/service_manager.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "store/base/text.h"

namespace evalcar::agent_service {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kStatusPause{2};
constexpr std::size_t kMaxStatus = 500;
/// A start or a stop that goes on gets so much time more, asked for in time.
constexpr seconds kExtension{60};
constexpr seconds kExtendPause{15};
constexpr std::size_t kMaxUndelivered = 8;
constexpr microseconds kLongestWait{50'000};  ///< for room in the listener's queue

std::string take_variable(const char* name) {
  const char* const value = std::getenv(name);
  std::string taken = value == nullptr ? "" : value;
  ::unsetenv(name);
  return taken;
}

/// The whole text as a number; absent: it is none.
std::optional<std::int64_t> number_in(const std::string& text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end || number <= 0) {
    return std::nullopt;
  }
  return number;
}

/// At most so many bytes, cut between two characters.
std::string shortened(std::string text) {
  if (text.size() <= kMaxStatus) return text;
  std::size_t end = kMaxStatus;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  text.resize(end);
  return text + "…";
}

/// The address and its length; absent: no socket can be called so.
std::optional<std::pair<sockaddr_un, socklen_t>> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const bool abstract = name.starts_with('@');
  if ((!abstract && !name.starts_with('/')) || name.size() < 2 ||
      name.size() >= sizeof address.sun_path) {
    return std::nullopt;
  }
  std::memcpy(address.sun_path, name.data(), name.size());
  if (abstract) address.sun_path[0] = '\0';
  // An abstract name has no end but its length; a path has its NUL.
  const std::size_t length = offsetof(sockaddr_un, sun_path) + name.size() + (abstract ? 0U : 1U);
  return std::pair(address, static_cast<socklen_t>(length));
}

}  // namespace

bool is_process_of_unit() {
  const char* const pid = std::getenv("SYSTEMD_EXEC_PID");  // NOLINT(concurrency-mt-unsafe)
  return pid != nullptr && pid == std::to_string(::getpid());
}

ManagerAddress take_manager_address() {
  ManagerAddress address;
  address.socket = take_variable("NOTIFY_SOCKET");
  const auto watchdog = number_in(take_variable("WATCHDOG_USEC"));
  const auto pid = number_in(take_variable("WATCHDOG_PID"));
  const bool ours = !pid.has_value() || *pid == ::getpid();
  if (watchdog.has_value() && ours) address.watchdog = microseconds(*watchdog);
  return address;
}

ServiceManager::ServiceManager(const Clock& clock, const ManagerAddress& address)
    : clock_(clock), socket_name_(address.socket), watchdog_(address.watchdog) {
  if (socket_name_.empty()) return;
  if (!address_of(socket_name_).has_value()) {
    spdlog::warn(
        "NOTIFY_SOCKET {}: neither a path nor \"@name\" that a socket can have; "
        "the service manager is told nothing",
        printable(socket_name_));
    return;
  }
  fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd_ < 0) {
    spdlog::warn("no socket to tell the service manager anything: {}", std::strerror(errno));
    return;
  }
  const timeval patience{0, static_cast<suseconds_t>(kLongestWait.count())};
  (void)::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

ServiceManager::~ServiceManager() {
  if (fd_ >= 0) ::close(fd_);
}

void ServiceManager::ready() {
  phase_ = Phase::kRunning;
  tell_state("READY=1");
}

void ServiceManager::reloading() {
  const auto now =
      std::chrono::duration_cast<microseconds>(clock_.monotonic_now().time_since_epoch());
  tell_state("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(now.count()));
}

void ServiceManager::stopping() {
  phase_ = Phase::kStopping;
  extended_at_.reset();
  tell_state("STOPPING=1\nSTATUS=stopping");
  alive();
}

void ServiceManager::status(const std::string& text) {
  if (fd_ < 0 || text == status_) return;
  const MonotonicTime now = clock_.monotonic_now();
  if (status_at_.has_value() && now - *status_at_ < kStatusPause) return;
  if (!send("STATUS=" + shortened(printable(text)), false)) return;
  status_ = text;
  status_at_ = now;
}

void ServiceManager::alive() {
  if (fd_ < 0) return;
  deliver();
  const MonotonicTime now = clock_.monotonic_now();
  if (phase_ != Phase::kRunning &&
      (!extended_at_.has_value() || now - *extended_at_ >= kExtendPause)) {
    const auto more = std::chrono::duration_cast<microseconds>(kExtension).count();
    if (send("EXTEND_TIMEOUT_USEC=" + std::to_string(more), false)) extended_at_ = now;
  }
  if (watchdog_.count() == 0) return;
  if (alive_at_.has_value() && now - *alive_at_ < watchdog_ / 4) return;
  if (send("WATCHDOG=1", false)) alive_at_ = now;
}

std::optional<milliseconds> ServiceManager::alive_every() const {
  if (fd_ < 0 || watchdog_.count() == 0) return std::nullopt;
  return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(watchdog_ / 3));
}

void ServiceManager::tell_state(std::string lines) {
  if (fd_ < 0) return;
  undelivered_.push_back(std::move(lines));
  if (undelivered_.size() > kMaxUndelivered) undelivered_.pop_front();
  deliver();
}

void ServiceManager::deliver() {
  while (!undelivered_.empty() && send(undelivered_.front(), true)) undelivered_.pop_front();
}

/// Without a connection: a listener that comes back under its name hears us again.
bool ServiceManager::send(const std::string& lines, bool may_wait) {
  const auto address = address_of(socket_name_);
  const int flags = MSG_NOSIGNAL | (may_wait ? 0 : MSG_DONTWAIT);
  ssize_t sent = 0;
  do {
    sent = ::sendto(fd_, lines.data(), lines.size(), flags,
                    reinterpret_cast<const sockaddr*>(&address->first), address->second);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) {
    complained_ = false;
    return true;
  }
  if (!complained_) {
    spdlog::warn("the service manager at {} cannot be told anything: {}", printable(socket_name_),
                 std::strerror(errno));
    complained_ = true;
  }
  return false;
}

}  // namespace evalcar::agent_service
