// Addresses and networks as the configuration and the Host field write them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "store/base/result.h"

struct sockaddr;

namespace evalcar::http {

/// IPv6; an IPv4 address is ::ffff:a.b.c.d, so that one listener of both kinds compares alike.
struct IpAddress {
  std::array<std::uint8_t, 16> bytes{};
  bool operator==(const IpAddress&) const = default;

  bool is_loopback() const;
  bool is_any() const;  ///< 0.0.0.0 or ::
  std::string text() const;
};

/// "10.0.0.1", "fe80::1"; no brackets, no scope.
Result<IpAddress> parse_address(std::string_view text);
/// Of an AF_INET or AF_INET6 address; all zeroes for others.
IpAddress address_of(const sockaddr& address);

/// All addresses that share the first `bits` bits.
struct Network {
  IpAddress base;
  int bits = 128;  ///< of the 16 bytes
  bool contains(const IpAddress& address) const;
};

/// "10.0.0.0/8", "fd00::/8", or one address. kInvalidArgument: also where bits behind the mask are
/// set, which shows a mistake.
Result<Network> parse_network(std::string_view text);

/// Where to listen: an address, or "localhost" for 127.0.0.1.
struct Endpoint {
  IpAddress address;
  std::uint16_t port = 0;  ///< 0: any free one
};
/// "127.0.0.1:8000", "[::1]:8000", "localhost:8000".
Result<Endpoint> parse_endpoint(std::string_view text);

/// The name in a Host field, without its port, in lower case and without brackets or a dot at the
/// end. kInvalidArgument: no such thing.
Result<std::string> host_name(std::string_view field);

}  // namespace evalcar::http
