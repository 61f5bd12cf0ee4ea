// Sockets, and HTTP/1.1 over them by Boost.Beast. Everything runs in the one thread that calls
// run(); a connection is a few hundred bytes until it sends something.
//
//   accept → wait for a first byte → head (bounded in size and time) → access → body (bounded)
//          → Handler → answer → the next request of the connection
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/http/access.h"
#include "agent/http/message.h"
#include "store/base/result.h"

namespace evalcar::http {

struct ListenerLimits {
  std::size_t connections = 1'024;  ///< the one that dawdles longest makes room for another
  std::uint32_t head_bytes = 16 * 1024;
  std::uint64_t body_bytes = std::uint64_t{64} * 1024;
  std::chrono::milliseconds head_time{10'000};  ///< from its first byte to its end
  std::chrono::milliseconds body_time{30'000};
  /// For an answer, and until a peer that acknowledges nothing any more is given up.
  std::chrono::milliseconds write_time{30'000};
  std::chrono::milliseconds idle_time{600'000};  ///< between two requests
  std::size_t streams = 16;                      ///< that are told events; further ones get a 503
};

/// Not thread-safe but for stop(), post(), broadcast(), streams() and topics().
class Listener {
 public:
  Listener(AccessRules rules, ListenerLimits limits, Handler handler);
  ~Listener();

  /// kUnavailable: the port is taken. The port that was taken is in `port`.
  Status listen_tcp(const Endpoint& endpoint);
  /// A stale socket file is replaced; kUnavailable: somebody answers on it, kInvalidArgument: it is
  /// another kind of file, or its folder is one that others may write to. Peers are known by their
  /// uid (rules.uids). The file is removed in the end.
  Status listen_unix(const std::string& path);
  std::uint16_t port() const { return port_; }

  /// Until stop().
  void run();
  void stop();
  /// In the thread of run(), soon; from any thread.
  void post(std::function<void()> work);
  /// An event for each stream of this topic. Each event tells all there is, so that a reader who is
  /// slow misses those between; one who takes none for `write_time` is dropped.
  void broadcast(const std::string& topic, std::string event);
  /// How many are listening, and to what, each once.
  std::size_t streams() const;
  std::vector<std::string> topics() const;

  struct State;  ///< listener_state.h

 private:
  std::shared_ptr<State> state_;
  std::uint16_t port_ = 0;
};

}  // namespace evalcar::http
