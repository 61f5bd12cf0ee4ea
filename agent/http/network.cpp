#include "agent/http/network.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace evalcar::http {
namespace {

constexpr int kMappedBits = 96;  ///< of ::ffff:0:0
constexpr std::size_t kMaxName = 255;

Error bad(std::string_view what, std::string_view text) {
  return make_error(ErrorCode::kInvalidArgument,
                    "expected " + std::string(what) + ", not \"" + std::string(text) + "\"");
}

bool is_mapped(const IpAddress& address) {
  const auto& b = address.bytes;
  return std::all_of(b.begin(), b.begin() + 10, [](std::uint8_t byte) { return byte == 0; }) &&
         b[10] == 0xff && b[11] == 0xff;
}

IpAddress mapped(const void* four_bytes) {
  IpAddress address;
  address.bytes[10] = address.bytes[11] = 0xff;
  std::memcpy(address.bytes.data() + 12, four_bytes, 4);
  return address;
}

template <typename Number>
bool parse_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

bool IpAddress::is_loopback() const {
  if (is_mapped(*this)) return bytes[12] == 127;
  return std::all_of(bytes.begin(), bytes.end() - 1, [](auto byte) { return byte == 0; }) &&
         bytes[15] == 1;
}

bool IpAddress::is_any() const {
  const auto rest = is_mapped(*this) ? bytes.begin() + 12 : bytes.begin();
  return std::all_of(rest, bytes.end(), [](auto byte) { return byte == 0; });
}

std::string IpAddress::text() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool v4 = is_mapped(*this);
  ::inet_ntop(v4 ? AF_INET : AF_INET6, bytes.data() + (v4 ? 12 : 0), text.data(), text.size());
  return text.data();
}

Result<IpAddress> parse_address(std::string_view text) {
  const std::string terminated(text.substr(0, INET6_ADDRSTRLEN));
  in_addr four{};
  if (::inet_pton(AF_INET, terminated.c_str(), &four) == 1) return mapped(&four);
  IpAddress address;
  if (text.size() == terminated.size() && terminated.find('\0') == std::string::npos &&
      ::inet_pton(AF_INET6, terminated.c_str(), address.bytes.data()) == 1) {
    return address;
  }
  return bad("an IP address", text);
}

IpAddress address_of(const sockaddr& address) {
  IpAddress result;
  if (address.sa_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, &address, sizeof four);
    return mapped(&four.sin_addr);
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 six{};
    std::memcpy(&six, &address, sizeof six);
    std::memcpy(result.bytes.data(), &six.sin6_addr, result.bytes.size());
  }
  return result;
}

bool Network::contains(const IpAddress& address) const {
  for (int bit = 0; bit < bits; bit += 8) {
    const auto index = static_cast<std::size_t>(bit / 8);
    const int rest = std::min(8, bits - bit);
    const auto mask = static_cast<std::uint8_t>(0xff << (8 - rest));
    if ((address.bytes[index] & mask) != (base.bytes[index] & mask)) return false;
  }
  return true;
}

Result<Network> parse_network(std::string_view text) {
  const std::size_t slash = text.find('/');
  Network network;
  const auto address = parse_address(text.substr(0, slash));
  if (!address.has_value()) return bad("a network such as \"10.0.0.0/8\"", text);
  network.base = *address;
  if (slash == std::string_view::npos) return network;
  const int offset = is_mapped(network.base) ? kMappedBits : 0;
  int bits = -1;
  if (!parse_number(text.substr(slash + 1), bits) || bits < 0 || bits > 128 - offset) {
    return bad("a network such as \"10.0.0.0/8\"", text);
  }
  network.bits = offset + bits;
  for (int bit = network.bits; bit < 128; ++bit) {
    const auto byte = network.base.bytes[static_cast<std::size_t>(bit / 8)];
    if ((byte & (0x80 >> (bit % 8))) != 0) {
      return bad("a network whose address ends with its mask", text);
    }
  }
  return network;
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  constexpr std::string_view kExpected = "an address and a port such as \"127.0.0.1:8000\"";
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad(kExpected, text);
  Endpoint endpoint;
  if (!parse_number(text.substr(colon + 1), endpoint.port)) return bad(kExpected, text);
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!bracketed && host.find(':') != std::string_view::npos) return bad(kExpected, text);
  const auto address = parse_address(host == "localhost" ? "127.0.0.1" : host);
  if (!address.has_value()) return bad(kExpected, text);
  endpoint.address = *address;
  return endpoint;
}

Result<std::string> host_name(std::string_view field) {
  std::string_view name = field;
  std::string_view port;
  if (name.starts_with('[')) {
    const std::size_t end = name.find(']');
    if (end == std::string_view::npos) return bad("a host name", field.substr(0, 80));
    port = name.substr(end + 1);
    name = name.substr(1, end - 1);
  } else if (const std::size_t colon = name.find(':'); colon != std::string_view::npos) {
    port = name.substr(colon);
    name = name.substr(0, colon);
  }
  std::uint16_t number = 0;
  const bool port_ok = port.empty() || (port.starts_with(':') &&
                                        (port.size() == 1 || parse_number(port.substr(1), number)));
  if (name.ends_with('.')) name.remove_suffix(1);
  const bool name_ok =
      !name.empty() && name.size() <= kMaxName && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '-' || c == '_' || c == ':';
      });
  if (!port_ok || !name_ok) return bad("a host name", field.substr(0, 80));
  std::string lower(name);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace evalcar::http
