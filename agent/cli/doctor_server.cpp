// Asks a server of lmms-eval's API for its health and version, by plain HTTP/1.1.
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "agent/cli/doctor.h"
#include "agent/supervise/child_process.h"

namespace evalcar::cli {
namespace {

using Level = Finding::Level;
using Json = nlohmann::json;
using supervise::OwnedFd;
using TimePoint = std::chrono::steady_clock::time_point;

constexpr std::chrono::seconds kLimit{5};
constexpr std::size_t kMostAnswer = std::size_t{4} << 20U;

bool wait_for(int fd, short events, TimePoint deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                        deadline - std::chrono::steady_clock::now())
                        .count();
  pollfd one{fd, events, 0};
  return left > 0 && ::poll(&one, 1, static_cast<int>(left)) > 0;
}

Error no_answer(const HostPort& to, const std::string& why) {
  return make_error(ErrorCode::kUnavailable, to.host + ":" + to.port + ": " + why);
}

/// Connected, and not blocking.
Result<OwnedFd> connect_to(const HostPort& to, TimePoint deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int code = ::getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &list); code != 0) {
    return no_answer(to, ::gai_strerror(code));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  std::string why = "no address";
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    OwnedFd fd(
        ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol));
    if (fd.get() < 0) continue;
    if (::connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0) return fd;
    int error = errno;
    if (error == EINPROGRESS) {
      error = ETIMEDOUT;
      socklen_t size = sizeof error;
      if (wait_for(fd.get(), POLLOUT, deadline)) {
        (void)::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      }
      if (error == 0) return fd;
    }
    why = errno_error("connect", "", error).message;
  }
  return no_answer(to, why);
}

Result<HttpAnswer> get(const HostPort& to, const std::string& path) {
  const TimePoint deadline = std::chrono::steady_clock::now() + kLimit;
  EVALCAR_ASSIGN_OR_RETURN(const OwnedFd fd, connect_to(to, deadline));
  const bool v6 = to.host.find(':') != std::string::npos;
  const std::string host = v6 ? "[" + to.host + "]" : to.host;
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: " + host + ":" + to.port +
                              "\r\nConnection: close\r\nAccept: application/json\r\n\r\n";
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return no_answer(to, "the request could not be sent");
  }
  std::string text;
  bool ended = false;
  while (!ended && text.size() < kMostAnswer) {
    if (!wait_for(fd.get(), POLLIN, deadline)) {
      return no_answer(to, "no whole answer within " + std::to_string(kLimit.count()) + " s");
    }
    text += supervise::read_available(fd.get(), 65536, ended);
  }
  return parse_http_answer(text);
}

std::string field(const std::string& body, const char* object, const char* key) {
  const Json document = Json::parse(body, nullptr, false);
  if (!document.is_object()) return "";
  const auto outer = *object == 0 ? document : document.value(object, Json::object());
  const auto found = outer.is_object() ? outer.find(key) : outer.end();
  return outer.is_object() && found != outer.end() && found->is_string() ? found->get<std::string>()
                                                                         : "";
}

/// The body of chunks put together.
Result<std::string> join_chunks(std::string_view text) {
  std::string body;
  while (true) {
    std::uint64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size, 16);
    const std::size_t line = text.find("\r\n");
    if (error != std::errc() || line == std::string_view::npos || size > kMostAnswer) break;
    if (size == 0) return body;
    if (text.size() < line + 2 + size + 2) break;
    body += text.substr(line + 2, size);
    text.remove_prefix(line + 2 + size + 2);
  }
  return make_error(ErrorCode::kCorruption, "HTTP: the answer's chunks break off");
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

}  // namespace

Result<HostPort> parse_server_url(std::string_view url) {
  const auto bad = [&](const std::string& why) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--server " + std::string(url) + ": " + why + "; expected http://host:port");
  };
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) return bad("only plain HTTP is asked");
  if (!url.starts_with(kScheme)) return bad("no http:// at its beginning");
  std::string_view authority = url.substr(kScheme.size());
  authority = authority.substr(0, authority.find_first_of("/?#"));
  if (authority.find_first_of("@ \t\r\n\\") != std::string_view::npos) return bad("no plain host");
  HostPort result{std::string(authority), "80"};
  const std::size_t bracket = authority.find(']');  // "[::1]:8000"
  const std::size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    result.host = std::string(authority.substr(0, colon));
    result.port = std::string(authority.substr(colon + 1));
  }
  if (result.host.starts_with('[') && result.host.ends_with(']')) {
    result.host = result.host.substr(1, result.host.size() - 2);
  }
  if (result.host.empty()) return bad("no host");
  int port = 0;
  const auto [end, error] =
      std::from_chars(result.port.data(), result.port.data() + result.port.size(), port);
  if (error != std::errc() || end != result.port.data() + result.port.size() || port < 1 ||
      port > 65535) {
    return bad("no port from 1 to 65535");
  }
  return result;
}

Result<HttpAnswer> parse_http_answer(std::string_view text) {
  const Error bad = make_error(ErrorCode::kCorruption,
                               "no answer of HTTP/1: \"" + std::string(text.substr(0, 60)) + "\"");
  const std::size_t head_end = text.find("\r\n\r\n");
  if (!text.starts_with("HTTP/1.") || text.size() < 12 || head_end == std::string_view::npos) {
    return bad;
  }
  HttpAnswer answer;
  const std::string_view code = text.substr(9, 3);
  const auto [end, error] = std::from_chars(code.data(), code.data() + code.size(), answer.status);
  if (error != std::errc() || end != code.data() + code.size()) return bad;
  const std::string head = lower_case(text.substr(0, head_end));
  const std::string_view body = text.substr(head_end + 4);
  if (head.find("\r\ntransfer-encoding: chunked") != std::string::npos) {
    EVALCAR_ASSIGN_OR_RETURN(answer.body, join_chunks(body));
  } else {
    answer.body = std::string(body);
  }
  return answer;
}

Findings check_server(const std::string& url) {
  const std::string mend =
      "is it started, does it listen on that address, does a firewall stand "
      "between (`evalcar serve`, [server] listen)?";
  const auto to = parse_server_url(url);
  if (!to.has_value()) return {{"server", Level::kProblem, to.error().message, ""}};
  const auto health = get(*to, "/health");
  if (!health.has_value()) {
    return {{"server", Level::kProblem, url + ": " + health.error().message, mend}};
  }
  const std::string status = field(health->body, "", "status");
  if (health->status != 200 || status.empty()) {
    return {{"server", Level::kProblem,
             url + ": /health answers " + std::to_string(health->status) +
                 " and tells no status: not a server of lmms-eval's API",
             "check host and port; a token may be needed"}};
  }
  std::string text = url + ": " + status;
  Level level = status == "healthy" ? Level::kOk : Level::kWarning;
  const auto about = get(*to, "/openapi.json");
  const std::string version =
      about.has_value() ? field(about->body, "info", "version") : std::string();
  const std::string title = about.has_value() ? field(about->body, "info", "title") : std::string();
  text += version.empty() ? ", of a version that it does not tell"
                          : ", " + (title.empty() ? "version" : title) + " " + version;
  return {{"server", level, text}};
}

}  // namespace evalcar::cli
