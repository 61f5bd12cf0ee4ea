// With a real datagram socket, as a service manager has it.
#include "agent/service/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/agent/temporary_folder.h"
#include "tests/unit/support/fake_clock.h"

using namespace evalcar;
using namespace evalcar::agent_service;
using evalcar::test::FakeClock;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

/// The other end of NOTIFY_SOCKET. `name`: a path or "@name".
class Listener {
 public:
  explicit Listener(const std::string& name)
      : name_(name), fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() +
                                               (name[0] == '@' ? 0 : 1));
    REQUIRE(::bind(fd_, reinterpret_cast<sockaddr*>(&address), length) == 0);
  }
  ~Listener() {
    ::close(fd_);
    if (name_[0] == '/') ::unlink(name_.c_str());
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// The datagrams that came since the last call.
  std::vector<std::string> heard() const {
    std::vector<std::string> all;
    std::array<char, 4096> buffer{};
    ssize_t n = 0;
    while ((n = ::recv(fd_, buffer.data(), buffer.size(), 0)) >= 0) {
      all.emplace_back(buffer.data(), static_cast<std::size_t>(n));
    }
    return all;
  }

 private:
  std::string name_;
  int fd_;
};

using Heard = std::vector<std::string>;
const std::string kMore = "EXTEND_TIMEOUT_USEC=60000000";

}  // namespace

TEST_CASE("a service manager hears of the start, a reload and the end, at a path") {
  const testing::TemporaryFolder folder;
  const Listener listener(folder / "notify");
  const FakeClock clock;  // 1000 s
  ServiceManager manager(clock, {folder / "notify", {}});

  manager.alive();
  CHECK(listener.heard() == Heard{kMore});
  manager.ready();
  manager.alive();
  CHECK(listener.heard() == Heard{"READY=1"});
  manager.reloading();
  manager.ready();
  CHECK(listener.heard() == Heard{"RELOADING=1\nMONOTONIC_USEC=1000000000", "READY=1"});
  manager.stopping();
  CHECK(listener.heard() == Heard{"STOPPING=1\nSTATUS=stopping", kMore});
}

TEST_CASE("a service manager hears us under a name of the abstract namespace") {
  const std::string name = "@evalcar-test-" + std::to_string(::getpid());
  const Listener listener(name);
  const FakeClock clock;
  ServiceManager manager(clock, {name, {}});

  manager.ready();

  CHECK(listener.heard() == Heard{"READY=1"});
}

TEST_CASE("the watchdog is fed by each turn, at most four times a period, and only by turns") {
  const testing::TemporaryFolder folder;
  const Listener listener(folder / "notify");
  FakeClock clock;
  ServiceManager manager(clock, {folder / "notify", seconds(8)});
  manager.ready();
  manager.alive();
  CHECK(listener.heard() == Heard{"READY=1", "WATCHDOG=1"});
  CHECK(manager.alive_every() == milliseconds(2666));

  for (int turn = 0; turn < 80; ++turn) {
    clock.advance(milliseconds(100));
    manager.alive();
  }
  CHECK(listener.heard() == Heard(4, "WATCHDOG=1"));

  clock.advance(seconds(100));
  manager.status("hanging");
  CHECK(listener.heard() == Heard{"STATUS=hanging"});
}

TEST_CASE("a start that goes on asks for more time, now and then, until it is ready") {
  const testing::TemporaryFolder folder;
  const Listener listener(folder / "notify");
  FakeClock clock;
  ServiceManager manager(clock, {folder / "notify", {}});

  for (int second = 0; second < 31; ++second) {
    manager.alive();
    clock.advance(seconds(1));
  }
  CHECK(listener.heard() == Heard(3, kMore));
  manager.ready();
  clock.advance(seconds(31));
  manager.alive();
  CHECK(listener.heard() == Heard{"READY=1"});
}

TEST_CASE("the status is told when it changes, on one line, of bounded length, not in a hurry") {
  const testing::TemporaryFolder folder;
  const Listener listener(folder / "notify");
  FakeClock clock;
  ServiceManager manager(clock, {folder / "notify", {}});

  manager.status("one\nREADY=1");
  manager.status("two");
  CHECK(listener.heard() == Heard{"STATUS=one\\nREADY=1"});
  clock.advance(seconds(2));
  manager.status("three");
  manager.status("three");
  CHECK(listener.heard() == Heard{"STATUS=three"});
  clock.advance(seconds(2));
  manager.status(std::string(499, 'x') + "ü" + std::string(99, 'y'));
  CHECK(listener.heard() == Heard{"STATUS=" + std::string(499, 'x') + "…"});
}

TEST_CASE("a change of state that nobody took is told as soon as somebody does, in order") {
  const testing::TemporaryFolder folder;
  const FakeClock clock;
  ServiceManager manager(clock, {folder / "notify", {}});
  manager.ready();  // nobody there
  manager.reloading();

  const Listener listener(folder / "notify");
  manager.alive();

  CHECK(listener.heard() == Heard{"READY=1", "RELOADING=1\nMONOTONIC_USEC=1000000000"});
}

TEST_CASE("a listener that takes nothing keeps nobody waiting") {
  const testing::TemporaryFolder folder;
  const Listener listener(folder / "notify");
  FakeClock clock;
  ServiceManager manager(clock, {folder / "notify", seconds(1)});
  manager.ready();
  const auto began = std::chrono::steady_clock::now();

  for (int turn = 0; turn < 2000; ++turn) {  // far more than the kernel queues
    clock.advance(seconds(1));
    manager.alive();
  }
  manager.stopping();

  CHECK(std::chrono::steady_clock::now() - began < seconds(5));
  CHECK(listener.heard().front() == "READY=1");
}

TEST_CASE("names that no socket can have are refused once and then ignored") {
  const FakeClock clock;
  for (const std::string& name :
       {std::string("relative"), std::string("@"), std::string("vsock:2:1"),
        "/" + std::string(200, 'x'), std::string()}) {
    ServiceManager manager(clock, {name, seconds(1)});
    manager.ready();
    manager.alive();
    manager.stopping();
    CHECK_FALSE(manager.alive_every().has_value());
  }
}

TEST_CASE("the environment names the service manager once, and no child hears of it") {
  ::setenv("NOTIFY_SOCKET", "/run/notify", 1);
  ::setenv("WATCHDOG_USEC", "30000000", 1);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);

  const ManagerAddress address = take_manager_address();

  CHECK(address.socket == "/run/notify");
  CHECK(address.watchdog == seconds(30));
  for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) {
    CHECK(std::getenv(name) == nullptr);
  }
  CHECK(take_manager_address().socket.empty());
}

TEST_CASE("a watchdog of another process, or one of nonsense, is none of ours") {
  for (const auto& [usec, pid] : std::vector<std::pair<const char*, const char*>>{
           {"30000000", "1"}, {"-5", ""}, {"0", ""}, {"12x", ""}, {"99999999999999999999", ""}}) {
    ::setenv("WATCHDOG_USEC", usec, 1);
    if (*pid != '\0') ::setenv("WATCHDOG_PID", pid, 1);
    CHECK(take_manager_address().watchdog == microseconds(0));
  }
}
