// A request that was read and the answer to it, without the library that reads and writes them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/http/network.h"

namespace evalcar::http {

/// Who is at the other end of a connection.
struct Peer {
  bool local_socket = false;  ///< a unix-domain socket: `uid` and `pid` by the kernel
  std::uint32_t uid = 0;
  std::int32_t pid = 0;
  IpAddress remote;  ///< else: where it comes from
  IpAddress here;    ///< and which of our addresses it asked
  /// "192.168.8.12", "pid 4711 of uid 1000": for the log.
  std::string text() const;
};

/// What of a request's head decides whether it is answered at all.
struct Head {
  std::string method;
  std::string target;
  std::vector<std::string> hosts;  ///< each Host field; there has to be one
  std::string origin;              ///< "" where none was sent
  std::string authorization;
  std::string content_type;
};

struct Request {
  Head head;
  std::string path;                          ///< decoded
  std::map<std::string, std::string> query;  ///< decoded
  std::string body;
  Peer peer;
};

struct Response {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> fields;
  /// Not "": the body is the first of the events that the listener is given for this topic
  /// (Listener::broadcast), and they follow until the peer goes.
  std::string topic = {};
};

/// May be called once, from any thread; a peer that has gone does not matter.
using Respond = std::function<void(Response)>;
/// Runs in the server's thread and must not block it.
using Handler = std::function<void(const Request& request, Respond respond)>;

/// `{"detail": text}` with a status: what FastAPI answers, and so every client of it knows.
Response error_response(unsigned status, std::string_view detail);

}  // namespace evalcar::http
