#include "agent/http/network.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar;
using namespace evalcar::http;

namespace {

IpAddress address(const char* text) { return parse_address(text).value(); }
Network network(const char* text) { return parse_network(text).value(); }

}  // namespace

TEST_CASE("addresses of both kinds are read and written alike") {
  CHECK(address("192.168.8.249").text() == "192.168.8.249");
  CHECK(address("::ffff:10.0.0.1") == address("10.0.0.1"));
  CHECK(address("fe80::1").text() == "fe80::1");
  for (const char* wrong : {"", "1.2.3", "1.2.3.4.5", "localhost", "1.2.3.4 ", "::1%lo", "[::1]",
                            "010.0.0.1x", "256.0.0.1"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_address(wrong).has_value());
  }
}

TEST_CASE("loopback is the whole of 127/8 and ::1, nothing else") {
  CHECK(address("127.0.0.1").is_loopback());
  CHECK(address("127.9.9.9").is_loopback());
  CHECK(address("::1").is_loopback());
  CHECK_FALSE(address("0.0.0.0").is_loopback());
  CHECK_FALSE(address("::").is_loopback());
  CHECK_FALSE(address("::2").is_loopback());
  CHECK_FALSE(address("10.0.0.1").is_loopback());
  CHECK(address("0.0.0.0").is_any());
  CHECK(address("::").is_any());
}

TEST_CASE("a network holds the addresses behind its mask and no others") {
  CHECK(network("10.0.0.0/8").contains(address("10.255.1.2")));
  CHECK_FALSE(network("10.0.0.0/8").contains(address("11.0.0.0")));
  CHECK(network("192.168.8.128/25").contains(address("192.168.8.200")));
  CHECK_FALSE(network("192.168.8.128/25").contains(address("192.168.8.127")));
  CHECK(network("fd00::/8").contains(address("fdff::1")));
  CHECK_FALSE(network("fd00::/8").contains(address("10.0.0.1")));
  CHECK(network("0.0.0.0/0").contains(address("8.8.8.8")));
  CHECK_FALSE(network("0.0.0.0/0").contains(address("fd00::1")));
  CHECK(network("10.1.2.3").contains(address("10.1.2.3")));
  CHECK_FALSE(network("10.1.2.3").contains(address("10.1.2.4")));
}

TEST_CASE("a network that cannot be meant is refused") {
  for (const char* wrong : {"10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "fd00::/129",
                            "10.0.0.0/8/8", "all"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_network(wrong).has_value());
  }
}

TEST_CASE("an endpoint is an address and a port") {
  CHECK(parse_endpoint("127.0.0.1:8000").value().port == 8000);
  CHECK(parse_endpoint("[::1]:80").value().address == address("::1"));
  CHECK(parse_endpoint("localhost:0").value().address == address("127.0.0.1"));
  for (const char* wrong : {"8000", "127.0.0.1", ":8000", "127.0.0.1:", "127.0.0.1:65536",
                            "::1:8000", "example.org:80", "127.0.0.1:80x"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_endpoint(wrong).has_value());
  }
}

TEST_CASE("a Host field gives its name without the port") {
  CHECK(host_name("GPU7.Example.org:8000").value() == "gpu7.example.org");
  CHECK(host_name("localhost").value() == "localhost");
  CHECK(host_name("localhost.:1").value() == "localhost");
  CHECK(host_name("[::1]:8000").value() == "::1");
  CHECK(host_name("10.0.0.1:").value() == "10.0.0.1");
  for (const char* wrong :
       {"", ":80", "a b", "user@host", "host:port", "[::1", "[::1]x", "h/\x01", "host:99999"}) {
    CAPTURE(wrong);
    CHECK_FALSE(host_name(wrong).has_value());
  }
  CHECK_FALSE(host_name(std::string(300, 'a')).has_value());
}
