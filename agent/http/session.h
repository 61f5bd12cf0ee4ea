// One connection of the HTTP API: a request, its answer, the next one; or a stream of events. Only
// listener.cpp and session.cpp see it, since it brings Boost along.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "agent/http/listener.h"

namespace evalcar::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using Stream = beast::basic_stream<asio::generic::stream_protocol>;

/// Lives as long as a call of its stream is under way, in the thread of Listener::run(), which
/// outlives it.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Listener::State& state, std::uint64_t id, Stream stream, Peer peer)
      : state_(state), id_(id), stream_(std::move(stream)), peer_(peer) {}
  ~Session();

  void wait_for_request();
  /// Nothing of a request is being worked on: whoever must make room may end it.
  bool dawdles() const { return waiting_; }
  std::chrono::steady_clock::time_point since() const { return since_; }
  void close();
  const std::string& topic() const { return topic_; }
  /// The next event; those that were not begun yet make way for it.
  void send(std::shared_ptr<const std::string> event);

 private:
  void read_head();
  /// Also of a request that will be refused: an answer that overtakes what is still being sent is
  /// lost with the connection.
  void read_body();
  void read_rest();
  void handle();
  /// A head or a body that is none, too large, or too slow.
  void refuse_unread(beast::error_code error);
  /// An answer that goes on until the peer goes, or reads too slowly.
  void stream(const Response& response);
  /// It has nothing more to say: what it sends is passed over, and its end is noticed.
  void watch_peer();
  void leave_streams();
  void answer(Response response, bool keep_alive);
  /// What is still coming is read for a moment: closing over it would take the answer back.
  void end(beast::error_code error);
  void drain();

  friend struct Listener::State;
  Listener::State& state_;
  std::uint64_t id_;
  Stream stream_;
  Peer peer_;
  beast::flat_buffer buffer_;
  std::optional<bhttp::request_parser<bhttp::string_body>> parser_;
  Request request_;
  std::optional<Response> refusal_;
  std::uint64_t drained_ = 0;
  std::string topic_;                           ///< of a stream
  std::shared_ptr<const std::string> sending_;  ///< the event that is under way
  std::shared_ptr<const std::string> next_;     ///< and the newest that waits for its end
  bool keep_alive_ = false;
  bool waiting_ = false;
  std::chrono::steady_clock::time_point since_;
};

}  // namespace evalcar::http
