// What a listener and its connections share.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/http/session.h"
#include "store/base/guarded.h"

namespace evalcar::http {

struct Listener::State : std::enable_shared_from_this<Listener::State> {
  State(AccessRules the_rules, ListenerLimits the_limits, Handler the_handler)
      : rules(std::move(the_rules)), limits(the_limits), handler(std::move(the_handler)) {}

  AccessRules rules;
  ListenerLimits limits;
  Handler handler;
  std::map<std::uint64_t, std::weak_ptr<Session>> sessions;  ///< outlives all that io holds
  std::map<std::uint64_t, std::weak_ptr<Session>>
      streams;                                           ///< as that; of those, the ones that go on
  Guarded<std::map<std::uint64_t, std::string>> topics;  ///< of the streams
  std::uint64_t next_session = 0;
  asio::io_context io{1};
  /// Those whose handler has not answered yet.
  std::map<std::uint64_t, std::shared_ptr<Session>> unanswered;

  struct Socket {
    explicit Socket(asio::io_context& io) : descriptor(io), pause(io) {}
    asio::posix::stream_descriptor descriptor;
    asio::steady_timer pause;
    bool local = false;
    std::string path;  ///< of a unix socket, to be removed
  };
  std::vector<std::unique_ptr<Socket>> sockets;

  void accept_when_ready(Socket& socket);
  void accept_some(Socket& socket);
  void begin(int fd, bool local);
  void make_room();
};

}  // namespace evalcar::http
