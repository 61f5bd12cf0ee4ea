#include "agent/http/access.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>

#include "store/base/hash.h"

namespace evalcar::http {
namespace {

constexpr std::size_t kLeastToken = 16;
constexpr std::size_t kMostToken = 1'000;

/// Without an early end: of digests, so that not even the length shows.
bool same_secret(std::string_view given, std::string_view token) {
  const std::string a = sha256_hex(given);
  const std::string b = sha256_hex(token);
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

std::optional<std::string> decode_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  unsigned bits = 0;
  int have = 0;
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0) return std::nullopt;
    bits = (bits << 6U) | static_cast<unsigned>(value);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    bytes.push_back(static_cast<char>((bits >> static_cast<unsigned>(have)) & 0xffU));
  }
  return bytes;
}

bool starts_with_word(std::string_view text, std::string_view word) {
  return text.size() > word.size() && text[word.size()] == ' ' &&
         std::equal(word.begin(), word.end(), text.begin(), [](char lower, char c) {
           return lower == (c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
         });
}

/// One of server.allowed_hosts.
bool is_listed(const AccessRules& rules, const std::string& name) {
  if (std::ranges::find(rules.hosts, name) != rules.hosts.end()) return true;
  const auto address = parse_address(name);
  if (!address.has_value()) return false;
  return std::ranges::any_of(rules.hosts, [&](const std::string& host) {
    const auto known = parse_address(host);
    return known.has_value() && *known == *address;
  });
}

bool is_own_name(const AccessRules& rules, const std::string& name, const Peer& peer) {
  if (name == "localhost" || is_listed(rules, name)) return true;
  const auto address = parse_address(name);
  if (!address.has_value()) return false;
  // An address cannot be made to point elsewhere: whoever asked this one meant it.
  return *address == peer.here || (address->is_loopback() && peer.here.is_loopback());
}

/// Our own page, over plain HTTP as we speak it; over TLS only where the configuration names the
/// host, since what ends TLS before us is a proxy that somebody set up.
bool is_own_origin(const AccessRules& rules, const Head& head) {
  if (head.hosts.size() != 1) return false;
  const std::string& host = head.hosts.front();
  if (head.origin == "http://" + host) return true;
  const auto name = host_name(host);
  return head.origin == "https://" + host && name.has_value() && is_listed(rules, *name);
}

bool needs_token(const AccessRules& rules, const Peer& peer) {
  if (rules.token.empty() || peer.local_socket) return false;
  return std::ranges::none_of(rules.allow_from,
                              [&](const Network& net) { return net.contains(peer.remote); });
}

}  // namespace

std::optional<std::string> secret_of(std::string_view authorization) {
  if (starts_with_word(authorization, "bearer")) {
    std::string_view secret = authorization.substr(7);
    while (secret.starts_with(' ')) secret.remove_prefix(1);
    while (secret.ends_with(' ')) secret.remove_suffix(1);
    return std::string(secret);
  }
  if (!starts_with_word(authorization, "basic")) return std::nullopt;
  std::string_view encoded = authorization.substr(6);
  while (encoded.starts_with(' ')) encoded.remove_prefix(1);
  while (encoded.ends_with(' ')) encoded.remove_suffix(1);
  const auto pair = decode_base64(encoded);
  if (!pair.has_value()) return std::nullopt;
  const std::size_t colon = pair->find(':');  // a user's name has none
  if (colon == std::string::npos) return std::nullopt;
  return pair->substr(colon + 1);
}

std::optional<Response> refusal(const AccessRules& rules, const Head& head, const Peer& peer) {
  if (peer.local_socket) {
    if (std::ranges::find(rules.uids, peer.uid) == rules.uids.end()) {
      return error_response(403, "this socket does not answer user " + std::to_string(peer.uid));
    }
  } else {
    if (head.hosts.size() != 1) return error_response(400, "one Host field is needed");
    const auto name = host_name(head.hosts.front());
    if (!name.has_value()) return error_response(400, "the Host field holds no host name");
    if (!is_own_name(rules, *name, peer)) {
      return error_response(403, "the Host field does not name this server (server.allowed_hosts)");
    }
  }
  if (!head.origin.empty() && !is_own_origin(rules, head)) {
    return error_response(403, "requests of other sites' pages are not answered");
  }
  if (!needs_token(rules, peer)) return std::nullopt;
  const auto secret = secret_of(head.authorization);
  if (secret.has_value() && same_secret(*secret, rules.token)) return std::nullopt;
  Response response = error_response(
      401, secret.has_value() ? "the token is wrong" : "a token is needed (server.token_file)");
  response.fields.emplace_back("WWW-Authenticate", "Basic realm=\"evalcar\"");
  return response;
}

Result<std::string> read_token(const FileSystem& files, const std::string& path) {
  const auto bad = [&](const std::string& why) {
    return make_error(ErrorCode::kInvalidArgument, "server.token_file: " + path + ": " + why);
  };
  const auto info = files.info_followed(path);
  if (!info.has_value()) return bad(info.error().message);
  if ((info->mode & S_IROTH) != 0) {
    return bad("everybody on this machine may read it; chmod o-rwx it");
  }
  auto text = read_file(files, path, kMostToken + 2);
  if (!text.has_value()) return bad(text.error().message);
  std::string token = text->substr(0, text->find_first_of("\r\n"));
  if (token.size() < kLeastToken || token.size() > kMostToken) {
    return bad("expected a first line of 16 to 1000 characters");
  }
  if (std::any_of(token.begin(), token.end(), [](char c) { return c <= ' ' || c >= 0x7f; })) {
    return bad("expected a token without blanks and control characters");
  }
  return token;
}

}  // namespace evalcar::http
