#include "agent/http/access.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::http;
using namespace evalcar::test;

namespace {

const std::string kToken = "0123456789abcdef0123";

Peer from(const char* remote, const char* here = "127.0.0.1") {
  Peer peer;
  peer.remote = parse_address(remote).value();
  peer.here = parse_address(here).value();
  return peer;
}

Head head(const std::string& host, const std::string& authorization = "") {
  Head head;
  head.method = "GET";
  head.hosts = {host};
  head.authorization = authorization;
  return head;
}

unsigned status_of(const AccessRules& rules, const Head& head, const Peer& peer) {
  const auto refused = refusal(rules, head, peer);
  return refused.has_value() ? refused->status : 200;
}

}  // namespace

TEST_CASE("a name that is not ours is refused, whatever else is right") {
  const AccessRules rules{.hosts = {"gpu7.example.org", "10.9.9.9"}};
  const Peer near = from("127.0.0.1");

  CHECK(status_of(rules, head("localhost:8000"), near) == 200);
  CHECK(status_of(rules, head("127.0.0.1:8000"), near) == 200);
  CHECK(status_of(rules, head("[::1]:8000"), near) == 200);
  CHECK(status_of(rules, head("gpu7.EXAMPLE.org"), near) == 200);
  CHECK(status_of(rules, head("10.9.9.9:1"), near) == 200);
  CHECK(status_of(rules, head("evil.example"), near) == 403);
  CHECK(status_of(rules, head("127.0.0.1.evil.example"), near) == 403);
  CHECK(status_of(rules, head("10.9.9.8"), near) == 403);
  CHECK(status_of(rules, head(""), near) == 400);

  Head two = head("localhost");
  two.hosts.emplace_back("evil.example");
  CHECK(status_of(rules, two, near) == 400);
  two.hosts.clear();
  CHECK(status_of(rules, two, near) == 400);
}

TEST_CASE("the address that was asked is a name of ours, another one of loopback is not") {
  const Peer far = from("192.168.8.12", "192.168.8.249");

  CHECK(status_of({}, head("192.168.8.249:8000"), far) == 200);
  CHECK(status_of({}, head("192.168.8.250:8000"), far) == 403);
  CHECK(status_of({}, head("127.0.0.1"), far) == 403);
}

TEST_CASE("requests of other sites' pages are refused") {
  Head own = head("localhost:8000");
  own.origin = "http://localhost:8000";
  Head foreign = own;
  foreign.origin = "http://evil.example";
  Head opaque = own;
  opaque.origin = "null";

  CHECK(status_of({}, own, from("127.0.0.1")) == 200);
  CHECK(status_of({}, foreign, from("127.0.0.1")) == 403);
  CHECK(status_of({}, opaque, from("127.0.0.1")) == 403);
}

TEST_CASE("our page behind a proxy that ends TLS may ask, where the proxy's name is a listed one") {
  const AccessRules rules{.hosts = {"gpu7.example.org", "10.9.9.9"}};
  const Peer proxy = from("127.0.0.1");
  const auto asked = [&](const std::string& host, const std::string& origin) {
    Head behind = head(host);
    behind.origin = origin;
    return status_of(rules, behind, proxy);
  };

  CHECK(asked("gpu7.example.org", "https://gpu7.example.org") == 200);
  CHECK(asked("gpu7.example.org:8443", "https://gpu7.example.org:8443") == 200);
  CHECK(asked("10.9.9.9", "https://10.9.9.9") == 200);
  CHECK(asked("gpu7.example.org", "https://gpu7.example.org:8443") == 403);
  CHECK(asked("gpu7.example.org", "https://evil.example") == 403);
  CHECK(asked("evil.example", "https://evil.example") == 403);
  // Names of ours that nobody listed: of no proxy that anybody told us of.
  CHECK(asked("localhost:8000", "https://localhost:8000") == 403);
  CHECK(asked("127.0.0.1", "https://127.0.0.1") == 403);
}

TEST_CASE("with a token only those who know it are answered") {
  const AccessRules rules{.token = kToken};
  const Peer peer = from("127.0.0.1");
  // base64 of "evalcar:0123456789abcdef0123" and of "evalcar:0123456789abcdef012"
  const std::string basic = "Basic ZXZhbGNhcjowMTIzNDU2Nzg5YWJjZGVmMDEyMw==";
  const std::string short_basic = "Basic ZXZhbGNhcjowMTIzNDU2Nzg5YWJjZGVmMDEy";

  CHECK(status_of(rules, head("localhost", "Bearer " + kToken), peer) == 200);
  CHECK(status_of(rules, head("localhost", "bearer  " + kToken + " "), peer) == 200);
  CHECK(status_of(rules, head("localhost", basic), peer) == 200);
  for (const std::string& wrong :
       {std::string(), "Bearer " + kToken.substr(1), "Bearer " + kToken.substr(0, 19),
        "Bearer " + kToken + "4", kToken, "Basic " + kToken, short_basic, std::string("Bearer "),
        std::string("Basic !!!"), "Digest " + kToken, "Bearer" + kToken}) {
    CAPTURE(wrong);
    const auto refused = refusal(rules, head("localhost", wrong), peer);
    REQUIRE(refused.has_value());
    CHECK(refused->status == 401);
    CHECK(refused->fields.front().first == "WWW-Authenticate");
    CHECK(refused->body.find(kToken) == std::string::npos);
  }
}

TEST_CASE("networks that were named need no token, all others do") {
  const AccessRules rules{.token = kToken, .allow_from = {parse_network("10.0.0.0/8").value()}};

  CHECK(status_of(rules, head("10.0.0.1"), from("10.3.3.3", "10.0.0.1")) == 200);
  CHECK(status_of(rules, head("10.0.0.1"), from("11.3.3.3", "10.0.0.1")) == 401);
  CHECK(status_of(rules, head("127.0.0.1"), from("127.0.0.1")) == 401);
}

TEST_CASE("a unix socket answers the users that were named and no others") {
  const AccessRules rules{.token = kToken, .uids = {1000}};
  Peer own{.local_socket = true, .uid = 1000};
  Peer other{.local_socket = true, .uid = 1001};

  CHECK(status_of(rules, head("anything"), own) == 200);
  CHECK(status_of(rules, head("anything", "Bearer " + kToken), other) == 403);
}

TEST_CASE("a token file that cannot keep a secret is refused") {
  const FakeClock clock;
  MemoryFileSystem files(clock);
  const auto write = [&](const std::string& text, std::uint32_t mode) {
    (void)files.remove_file("/token");
    auto file = files.create("/token", mode);
    REQUIRE(file.has_value());
    REQUIRE((*file)->append(std::as_bytes(std::span(text))).has_value());
    REQUIRE((*file)->close().has_value());
  };

  write(kToken + "\nrest", 0600);
  CHECK(read_token(files, "/token").value() == kToken);
  for (const std::string& wrong :
       {std::string(), std::string("short"), std::string(2000, 'x'),
        std::string("0123456789 abcdef0123"), std::string("\n") + kToken}) {
    CAPTURE(wrong.substr(0, 40));
    write(wrong, 0600);
    CHECK_FALSE(read_token(files, "/token").has_value());
  }
  CHECK_FALSE(read_token(files, "/nowhere").has_value());
}
