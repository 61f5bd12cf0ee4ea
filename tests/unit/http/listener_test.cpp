// The real listener on real sockets.
#include "agent/http/listener.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <fstream>
#include <thread>

#include "agent/supervise/child_process.h"
#include "tests/unit/support/sanitizers.h"
#include "tests/unit/support/temporary_directory.h"

using namespace evalcar;
using namespace evalcar::http;
using supervise::OwnedFd;
using test::TemporaryDirectory;

namespace {

void echo(const Request& request, const Respond& respond) {
  Response response;
  response.body = request.head.method + " " + request.path + " " + request.body;
  respond(std::move(response));
}

/// A listener in its own thread.
class Running {
 public:
  explicit Running(ListenerLimits limits = {}, Handler handler = echo, AccessRules rules = {})
      : listener(std::move(rules), limits, std::move(handler)) {}
  ~Running() {
    listener.stop();
    if (thread_.joinable()) thread_.join();
  }
  void start() {
    thread_ = std::thread([this] { listener.run(); });
  }
  Listener listener;

 private:
  std::thread thread_;
};

OwnedFd connect_to(std::uint16_t port) {
  OwnedFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience{30, 0};
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

void send_text(const OwnedFd& fd, const std::string& text) {
  (void)!::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
}

/// Until the other side has nothing more to say.
std::string receive_all(const OwnedFd& fd) {
  std::string text;
  std::array<char, 4096> piece{};
  while (true) {
    const ssize_t n = ::recv(fd.get(), piece.data(), piece.size(), 0);
    if (n <= 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(n));
  }
}

std::string ask(std::uint16_t port, const std::string& text) {
  const OwnedFd fd = connect_to(port);
  send_text(fd, text);
  return receive_all(fd);
}

std::string get(const std::string& path, const std::string& more = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + more + "\r\n";
}

constexpr Endpoint any_port() {
  return {.address = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}}, .port = 0};
}

}  // namespace

TEST_CASE("a request is answered, and another one on the same connection") {
  Running server;
  REQUIRE(server.listener.listen_tcp(any_port()).has_value());
  server.start();

  const std::string answer =
      ask(server.listener.port(),
          "POST /a%20b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi" + get("/next"));

  CHECK(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(answer.find("POST /a b hi") != std::string::npos);
  CHECK(answer.find("GET /next ") != std::string::npos);
  CHECK(answer.find("X-Content-Type-Options: nosniff") != std::string::npos);
  CHECK(answer.find("Access-Control") == std::string::npos);
}

TEST_CASE("a handler may answer later and from another thread") {
  std::thread worker;
  Running server({}, [&worker](const Request&, const Respond& respond) {
    worker = std::thread([respond] { respond({.body = "later"}); });
  });
  REQUIRE(server.listener.listen_tcp(any_port()).has_value());
  server.start();

  CHECK(ask(server.listener.port(), get("/")).find("later") != std::string::npos);
  worker.join();
}

TEST_CASE("what is too large is refused at its limit") {
  ListenerLimits limits;
  limits.body_bytes = 100;
  limits.head_bytes = 1'000;
  Running server(limits);
  REQUIRE(server.listener.listen_tcp(any_port()).has_value());
  server.start();
  const auto port = server.listener.port();
  const std::string post = "POST / HTTP/1.1\r\nHost: localhost\r\n";

  CHECK(ask(port, post + "Content-Length: 10737418240\r\n\r\nx").starts_with("HTTP/1.1 413"));
  CHECK(ask(port, post + "Transfer-Encoding: chunked\r\n\r\n1000\r\n" + std::string(4096, 'x'))
            .starts_with("HTTP/1.1 413"));
  CHECK(ask(port, get("/", "X: " + std::string(2'000, 'x') + "\r\n")).starts_with("HTTP/1.1 431"));
  CHECK(ask(port, "G " + std::string(5'000, 'x')).substr(0, 12) != "HTTP/1.1 200");
  CHECK(ask(port, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
  CHECK(ask(port, post + "Content-Length: 100\r\nConnection: close\r\n\r\n" + std::string(100, 'x'))
            .starts_with("HTTP/1.1 200"));
}

TEST_CASE("a refusal does not get lost behind a body that is still being sent") {
  AccessRules rules;
  rules.token = "0123456789abcdef";
  Running server({}, echo, rules);
  REQUIRE(server.listener.listen_tcp(any_port()).has_value());
  server.start();

  const std::string answer = ask(
      server.listener.port(),
      "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 50000\r\n\r\n" +
          std::string(50'000, 'x'));

  CHECK(answer.starts_with("HTTP/1.1 401"));
  CHECK(answer.find("WWW-Authenticate: Basic") != std::string::npos);
}

TEST_CASE("a head that does not come to its end closes its connection") {
  ListenerLimits limits;
  limits.head_time = std::chrono::milliseconds(200);
  Running server(limits);
  REQUIRE(server.listener.listen_tcp(any_port()).has_value());
  server.start();
  const OwnedFd slow = connect_to(server.listener.port());
  send_text(slow, "GET / HTTP/1.1\r\nHost: loc");

  CHECK(receive_all(slow).empty());  // it ends, without an answer
}

TEST_CASE("connections that dawdle make room for one that asks") {
  ListenerLimits limits;
  limits.connections = 8;
  Running server(limits);
  REQUIRE(server.listener.listen_tcp(any_port()).has_value());
  server.start();
  std::vector<OwnedFd> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(connect_to(server.listener.port()));
    send_text(slow.back(), "GET / HT");
  }

  CHECK(ask(server.listener.port(), get("/")).starts_with("HTTP/1.1 200"));
}

TEST_CASE("without descriptors nothing is accepted, and with them again everything is") {
  if (test::kUnderAddressSanitizer) SKIP(test::kNeedsDescriptors);
  Running server;
  REQUIRE(server.listener.listen_tcp(any_port()).has_value());
  server.start();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const OwnedFd early = connect_to(server.listener.port());
  OwnedFd late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::vector<OwnedFd> hoard;
  const rlimit few{static_cast<rlim_t>(late.get() + 20), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) hoard.emplace_back(fd);

  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.listener.port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int connected =
      ::connect(late.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  send_text(late, get("/"));
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto cpu = used.ru_utime.tv_sec;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ::getrusage(RUSAGE_SELF, &used);
  hoard.clear();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);

  REQUIRE(connected == 0);
  CHECK(used.ru_utime.tv_sec - cpu < 5);
  CHECK(receive_all(late).starts_with("HTTP/1.1 200"));
}

TEST_CASE("a peer that goes away before its answer ends nothing") {
  Running server({}, [](const Request&, const Respond& respond) {
    respond({.body = std::string(1'000'000, 'x')});
  });
  REQUIRE(server.listener.listen_tcp(any_port()).has_value());
  server.start();
  for (int i = 0; i < 20; ++i) {
    const OwnedFd fd = connect_to(server.listener.port());
    const linger at_once{1, 0};
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    send_text(fd, get("/"));
  }

  CHECK(ask(server.listener.port(), get("/")).size() > 1'000'000);
}

TEST_CASE("a port that somebody else has is told as that") {
  Running server;
  REQUIRE(server.listener.listen_tcp(any_port()).has_value());
  Endpoint taken = any_port();
  taken.port = server.listener.port();
  Running other;
  const Status refused = other.listener.listen_tcp(taken);

  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == ErrorCode::kUnavailable);
}

namespace {

OwnedFd connect_local(const std::string& path) {
  OwnedFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

}  // namespace

TEST_CASE("a unix socket answers its own user without a token") {
  const TemporaryDirectory folder;
  const std::string path = folder / "api.sock";
  AccessRules rules;
  rules.token = "0123456789abcdef";
  rules.uids = {static_cast<std::uint32_t>(::getuid())};
  {
    Running server({}, echo, rules);
    REQUIRE(server.listener.listen_unix(path).has_value());
    server.start();
    const OwnedFd fd = connect_local(path);
    send_text(fd, get("/local"));
    CHECK(receive_all(fd).find("GET /local") != std::string::npos);

    Running second;
    const Status taken = second.listener.listen_unix(path);
    REQUIRE_FALSE(taken.has_value());
    CHECK(taken.error().code == ErrorCode::kUnavailable);
    CHECK(connect_local(path).get() >= 0);  // it was left alone
  }
  CHECK(::access(path.c_str(), F_OK) != 0);
}

TEST_CASE("a unix socket refuses users that were not named") {
  const TemporaryDirectory folder;
  AccessRules rules;
  rules.uids = {static_cast<std::uint32_t>(::getuid()) + 1};
  Running server({}, echo, rules);
  REQUIRE(server.listener.listen_unix(folder / "api.sock").has_value());
  server.start();
  const OwnedFd fd = connect_local(folder / "api.sock");
  send_text(fd, get("/"));

  CHECK(receive_all(fd).starts_with("HTTP/1.1 403"));
}

TEST_CASE("a stale socket file is replaced, another kind of file stays") {
  const TemporaryDirectory folder;
  const std::string path = folder / "api.sock";
  {
    const OwnedFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size());
    REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  Running server;
  CHECK(server.listener.listen_unix(path).has_value());

  const std::string file = folder / "notes";
  std::ofstream(file) << "keep";
  Running other;
  CHECK_FALSE(other.listener.listen_unix(file).has_value());
  CHECK(::access(file.c_str(), F_OK) == 0);

  REQUIRE(::mkdir((folder / "open").c_str(), 0700) == 0);
  REQUIRE(::chmod((folder / "open").c_str(), 0777) == 0);
  CHECK_FALSE(other.listener.listen_unix(folder / "open/api.sock").has_value());
}

// ---- events

namespace {

/// Every answer is a stream of the topic that its path names.
void tell(const Request& request, const Respond& respond) {
  Response response;
  response.topic = request.path.substr(1);
  response.body = "data: first\n\n";
  respond(std::move(response));
}

const std::string kListen = "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Until `end` came, or nothing comes any more.
std::string receive_until(const OwnedFd& fd, const std::string& end) {
  std::string text;
  std::array<char, 4096> piece{};
  while (text.find(end) == std::string::npos) {
    const ssize_t n = ::recv(fd.get(), piece.data(), piece.size(), 0);
    if (n <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(n));
  }
  return text;
}

/// As many are listening; false after a minute.
bool come_to_be(const Listener& listener, std::size_t streams) {
  for (int i = 0; i < 12'000 && listener.streams() != streams; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return listener.streams() == streams;
}

}  // namespace

TEST_CASE("events of a topic reach those who listen to it, until they go") {
  Running running({}, tell);
  REQUIRE(running.listener.listen_tcp(any_port()).has_value());
  running.start();
  OwnedFd one = connect_to(running.listener.port());
  const OwnedFd other = connect_to(running.listener.port());
  send_text(one, kListen);
  send_text(other, "GET /b HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string head = receive_until(one, "first\n\n");
  CHECK(head.find("Content-Type: text/event-stream\r\n") != std::string::npos);
  CHECK(head.find("nosniff") != std::string::npos);
  receive_until(other, "first\n\n");
  REQUIRE(come_to_be(running.listener, 2));

  running.listener.broadcast("a", "data: for a\n\n");
  running.listener.broadcast("b", "data: for b\n\n");

  CHECK(receive_until(one, "\n\n") == "data: for a\n\n");
  CHECK(receive_until(other, "\n\n") == "data: for b\n\n");
  one.reset();
  CHECK(come_to_be(running.listener, 1));
}

TEST_CASE("only so many are told events, and each one that goes makes room") {
  Running running({.streams = 1}, tell);
  REQUIRE(running.listener.listen_tcp(any_port()).has_value());
  running.start();
  OwnedFd one = connect_to(running.listener.port());
  send_text(one, kListen);
  receive_until(one, "first\n\n");
  const OwnedFd other = connect_to(running.listener.port());
  send_text(other, kListen);
  CHECK(receive_until(other, "\r\n\r\n").starts_with("HTTP/1.1 503"));
  one.reset();
  REQUIRE(come_to_be(running.listener, 0));

  send_text(other, kListen);  // its connection goes on after the 503

  CHECK(receive_until(other, "first\n\n").find("HTTP/1.1 200 OK") != std::string::npos);
}

TEST_CASE("who reads no events is dropped, and what waits for him is one event") {
  Running running({.write_time = std::chrono::milliseconds(300)}, tell);
  REQUIRE(running.listener.listen_tcp(any_port()).has_value());
  running.start();
  const OwnedFd idle = connect_to(running.listener.port());
  send_text(idle, kListen);
  REQUIRE(come_to_be(running.listener, 1));
  const std::string big = "data: " + std::string(16 << 20, 'x') + "\n\n";

  for (int i = 0; i < 4; ++i) running.listener.broadcast("a", big);

  CHECK(come_to_be(running.listener, 0));
}

TEST_CASE("who talks into his stream of events is dropped") {
  Running running({.body_bytes = 1000}, tell);
  REQUIRE(running.listener.listen_tcp(any_port()).has_value());
  running.start();
  const OwnedFd loud = connect_to(running.listener.port());
  send_text(loud, kListen);
  REQUIRE(come_to_be(running.listener, 1));

  send_text(loud, std::string(100'000, 'x'));

  CHECK(come_to_be(running.listener, 0));
}

namespace {

/// What comes for this socket is dropped by the kernel before TCP sees it: to the other side its
/// machine has vanished.
void vanish(const OwnedFd& fd) {
  sock_filter nothing = {BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program = {1, &nothing};
  REQUIRE(::setsockopt(fd.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
}

/// Of a listener whose answers are streams; open once its head is there.
OwnedFd listening(std::uint16_t port) {
  OwnedFd fd = connect_to(port);
  send_text(fd, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::array<char, 4096> piece{};
  const ssize_t n = ::recv(fd.get(), piece.data(), piece.size(), 0);
  REQUIRE(std::string(piece.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0)))
              .starts_with("HTTP/1.1 200 OK"));
  return fd;
}

void stream(const Request&, const Respond& respond) {
  Response response;
  response.topic = "news";
  response.body = "data: first\n\n";
  respond(std::move(response));
}

/// Whether all places of streams become free; `event`: one is told meanwhile, again and again.
bool places_become_free(Listener& listener, bool event) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!listener.topics().empty()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    if (event) listener.broadcast("news", "data: next\n\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

}  // namespace

TEST_CASE(
    "peers that vanished without a word make room, whether there is anything to tell or not") {
  const bool event = GENERATE(true, false);
  CAPTURE(event);
  Running server({.write_time = std::chrono::milliseconds(2'000), .streams = 2}, stream);
  REQUIRE(server.listener.listen_tcp(any_port()).has_value());
  server.start();
  const OwnedFd first = listening(server.listener.port());
  const OwnedFd second = listening(server.listener.port());
  CHECK(ask(server.listener.port(), get("/events")).starts_with("HTTP/1.1 503 "));
  CHECK(server.listener.topics() == std::vector<std::string>{"news"});

  vanish(first);
  vanish(second);

  CHECK(places_become_free(server.listener, event));
  const OwnedFd third = listening(server.listener.port());
}
