#include "agent/http/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "agent/http/target.h"
#include "agent/supervise/child_process.h"
#include "store/base/guarded.h"
#include "store/base/text.h"

namespace evalcar::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using supervise::OwnedFd;
using Stream = beast::basic_stream<asio::generic::stream_protocol>;

constexpr int kBacklog = 512;
constexpr int kAcceptsATurn = 64;
/// No descriptor is left: the ones that end meanwhile make room.
constexpr std::chrono::milliseconds kAcceptPause{200};

}  // namespace

class Session;

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

/// One connection.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Listener::State& state, std::uint64_t id, Stream stream, Peer peer)
      : state_(state), id_(id), stream_(std::move(stream)), peer_(std::move(peer)) {}
  ~Session() {
    leave_streams();
    state_.sessions.erase(id_);
  }

  void wait_for_request() {
    since_ = std::chrono::steady_clock::now();
    waiting_ = true;
    parser_.reset();
    if (buffer_.size() > 0) return read_head();
    buffer_.shrink_to_fit();
    stream_.expires_after(state_.limits.idle_time);
    stream_.async_read_some(buffer_.prepare(1024),
                            [self = shared_from_this()](beast::error_code error, std::size_t n) {
                              if (error) return self->close();
                              self->buffer_.commit(n);
                              self->since_ = std::chrono::steady_clock::now();
                              self->read_head();
                            });
  }
  /// Nothing of a request is being worked on: whoever must make room may end it.
  bool dawdles() const { return waiting_; }
  std::chrono::steady_clock::time_point since() const { return since_; }
  void close() {
    leave_streams();
    beast::error_code ignored;
    stream_.socket().shutdown(asio::socket_base::shutdown_both, ignored);
    stream_.close();
  }
  const std::string& topic() const { return topic_; }
  /// The next event; those that were not begun yet make way for it.
  void send(std::shared_ptr<const std::string> event) {
    if (sending_ != nullptr) {
      next_ = std::move(event);
      return;
    }
    sending_ = std::move(event);
    stream_.expires_after(state_.limits.write_time);
    asio::async_write(stream_, asio::buffer(*sending_),
                      [self = shared_from_this()](beast::error_code error, std::size_t) {
                        self->sending_.reset();
                        if (error) return self->close();
                        if (self->next_ != nullptr) self->send(std::exchange(self->next_, nullptr));
                      });
  }

 private:
  void read_head() {
    parser_.emplace();
    parser_->header_limit(state_.limits.head_bytes);
    parser_->body_limit(state_.limits.body_bytes);
    stream_.expires_after(state_.limits.head_time);
    bhttp::async_read_header(stream_, buffer_, *parser_,
                             [self = shared_from_this()](beast::error_code error, std::size_t) {
                               if (error) return self->refuse_unread(error);
                               self->waiting_ = false;
                               self->read_body();
                             });
  }

  /// Also of a request that will be refused: an answer that overtakes what is still being sent is
  /// lost with the connection.
  void read_body() {
    request_ = {};
    Head& head = request_.head;
    const auto& message = parser_->get();
    head.method = std::string(message.method_string());
    head.target = std::string(message.target());
    for (const auto& field : message) {
      if (field.name() == bhttp::field::host) head.hosts.emplace_back(field.value());
    }
    head.origin = std::string(message[bhttp::field::origin]);
    head.authorization = std::string(message[bhttp::field::authorization]);
    head.content_type = std::string(message[bhttp::field::content_type]);
    request_.peer = peer_;
    refusal_ = refusal(state_.rules, head, peer_);
    keep_alive_ = message.keep_alive();
    stream_.expires_after(state_.limits.body_time);
    const bool expects = beast::iequals(message[bhttp::field::expect], "100-continue");
    if (expects && !refusal_.has_value()) {
      auto go_on = std::make_shared<bhttp::response<bhttp::empty_body>>(bhttp::status::continue_,
                                                                        message.version());
      return bhttp::async_write(
          stream_, *go_on,
          [self = shared_from_this(), go_on](beast::error_code error, std::size_t) {
            if (error) return self->close();
            self->read_rest();
          });
    }
    if (expects) return answer(std::move(*refusal_), false);
    read_rest();
  }

  void read_rest() {
    bhttp::async_read(stream_, buffer_, *parser_,
                      [self = shared_from_this()](beast::error_code error, std::size_t) {
                        if (error) return self->refuse_unread(error);
                        self->handle();
                      });
  }

  void handle() {
    if (refusal_.has_value()) return answer(std::move(*refusal_), keep_alive_);
    auto target = parse_target(request_.head.target);
    if (!target.has_value()) return answer(error_response(400, target.error().message), false);
    request_.path = std::move(target->path);
    request_.query = std::move(target->query);
    request_.body = std::move(parser_->get().body());
    stream_.expires_never();  // the handler's own time
    state_.unanswered[id_] = shared_from_this();
    state_.handler(request_, [state = state_.weak_from_this(), id = id_](Response response) {
      const auto alive = state.lock();
      if (alive == nullptr) return;
      asio::post(alive->io, [state, id, response = std::move(response)]() mutable {
        const auto there = state.lock();
        if (there == nullptr) return;
        const auto found = there->unanswered.find(id);
        if (found == there->unanswered.end()) return;
        const auto self = std::move(found->second);
        there->unanswered.erase(found);
        self->answer(std::move(response), self->keep_alive_);
      });
    });
  }

  /// A head or a body that is none, too large, or too slow.
  void refuse_unread(beast::error_code error) {
    if (error == bhttp::error::header_limit) {
      return answer(error_response(431, "the head is too large"), false);
    }
    if (error == bhttp::error::body_limit) {
      return answer(error_response(413, "the body is too large"), false);
    }
    const bool is_http =
        error.category() == bhttp::make_error_code(bhttp::error::bad_method).category();
    const bool ended =
        error == bhttp::error::end_of_stream || error == bhttp::error::partial_message;
    if (!is_http || ended) return close();  // gone, or too slow
    answer(error_response(400, "not an HTTP request: " + error.message()), false);
  }

  /// An answer that goes on until the peer goes, or reads too slowly.
  void stream(const Response& response) {
    if (state_.streams.size() >= state_.limits.streams) {
      Response full = error_response(503, "enough pages are being told already");
      full.fields.emplace_back("Retry-After", "60");
      return answer(std::move(full), keep_alive_);
    }
    topic_ = response.topic;
    state_.streams[id_] = weak_from_this();
    state_.topics.with([this](auto& topics) { topics[id_] = topic_; });
    stream_.expires_never();  // for reading; each event has its own time
    watch_peer();
    send(std::make_shared<const std::string>(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n" +
        response.body));
  }
  /// It has nothing more to say: what it sends is passed over, and its end is noticed.
  void watch_peer() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(512),
                            [self = shared_from_this()](beast::error_code error, std::size_t n) {
                              self->drained_ += n;
                              if (error || self->drained_ > self->state_.limits.body_bytes)
                                return self->close();
                              self->watch_peer();
                            });
  }
  void leave_streams() {
    if (topic_.empty()) return;
    state_.streams.erase(id_);
    state_.topics.with([this](auto& topics) { topics.erase(id_); });
  }

  void answer(Response response, bool keep_alive) {
    waiting_ = false;
    if (!response.topic.empty()) return stream(response);
    auto message = std::make_shared<bhttp::response<bhttp::string_body>>();
    message->result(response.status);
    message->version(11);
    message->set(bhttp::field::content_type, response.content_type);
    message->set("X-Content-Type-Options", "nosniff");
    message->set(bhttp::field::cache_control, "no-store");
    for (const auto& [name, value] : response.fields) message->set(name, value);
    const bool head_only = request_.head.method == "HEAD";
    const std::size_t size = response.body.size();
    if (!head_only) message->body() = std::move(response.body);
    message->keep_alive(keep_alive);
    message->content_length(size);
    stream_.expires_after(state_.limits.write_time);
    bhttp::async_write(
        stream_, *message,
        [self = shared_from_this(), message, keep_alive](beast::error_code error, std::size_t) {
          if (error || !keep_alive) return self->end(error);
          self->wait_for_request();
        });
  }

  /// What is still coming is read for a moment: closing over it would take the answer back.
  void end(beast::error_code error) {
    if (error) return close();
    beast::error_code ignored;
    stream_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
    waiting_ = true;
    drained_ = 0;
    stream_.expires_after(std::chrono::seconds(1));
    drain();
  }
  void drain() {
    buffer_.clear();
    stream_.async_read_some(
        buffer_.prepare(4096), [self = shared_from_this()](beast::error_code error, std::size_t n) {
          self->drained_ += n;
          const bool enough = self->drained_ > 4 * self->state_.limits.body_bytes;
          if (error || enough) return self->close();
          self->drain();
        });
  }

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

// ---- sockets

void Listener::State::accept_when_ready(Socket& socket) {
  socket.descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                               [this, &socket](beast::error_code error) {
                                 if (!error) accept_some(socket);
                               });
}

void Listener::State::accept_some(Socket& socket) {
  for (int i = 0; i < kAcceptsATurn; ++i) {
    const int fd = ::accept4(socket.descriptor.native_handle(), nullptr, nullptr,
                             SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      begin(fd, socket.local);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) break;
    // No descriptor or no memory: asking again at once would spin.
    make_room();
    socket.pause.expires_after(kAcceptPause);
    return socket.pause.async_wait([this, &socket](beast::error_code error) {
      if (!error) accept_when_ready(socket);
    });
  }
  accept_when_ready(socket);
}

/// Whose machine went, or whose network, sends no end: the kernel would go on sending to him for a
/// quarter of an hour, and what waits for its turn would find all places taken. He is asked while
/// there is nothing to send, and given up once nothing was acknowledged for so long.
void notice_vanished_peer(int fd, std::chrono::milliseconds patience) {
  using std::chrono::seconds;
  const auto set = [fd](int level, int option, auto value) {
    const int number = static_cast<int>(value);
    (void)::setsockopt(fd, level, option, &number, sizeof number);
  };
  const auto idle = std::max(std::chrono::ceil<seconds>(patience / 2), seconds{1});
  const auto pause = std::max(std::chrono::ceil<seconds>(patience / 6), seconds{1});
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, idle.count());
  set(IPPROTO_TCP, TCP_KEEPINTVL, pause.count());
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, patience.count());
}

void Listener::State::begin(int fd, bool local) {
  OwnedFd owned(fd);
  Peer peer;
  peer.local_socket = local;
  sockaddr_storage storage{};
  auto* const address = reinterpret_cast<sockaddr*>(&storage);  // as POSIX wants it
  socklen_t length = sizeof storage;
  int family = AF_UNIX;
  if (local) {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return;
    peer.uid = credentials.uid;
    peer.pid = credentials.pid;
  } else {
    if (::getpeername(fd, address, &length) != 0) return;
    peer.remote = address_of(*address);
    length = sizeof storage;
    if (::getsockname(fd, address, &length) != 0) return;
    peer.here = address_of(*address);
    family = address->sa_family;
    const int on = 1;
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    notice_vanished_peer(fd, limits.write_time);
  }
  if (sessions.size() >= limits.connections) make_room();
  if (sessions.size() >= limits.connections) return;  // all of them are being answered
  Stream stream(io);
  beast::error_code error;
  stream.socket().assign(asio::generic::stream_protocol(family, local ? 0 : IPPROTO_TCP), fd,
                         error);
  if (error) return;
  (void)owned.release();
  const std::uint64_t id = next_session++;
  auto session = std::make_shared<Session>(*this, id, std::move(stream), std::move(peer));
  sessions[id] = session;
  session->wait_for_request();
}

/// Ends the connection that has been without a whole request for longest.
void Listener::State::make_room() {
  std::shared_ptr<Session> oldest;
  for (const auto& [id, weak] : sessions) {
    const auto session = weak.lock();
    if (session == nullptr || !session->dawdles()) continue;
    if (oldest == nullptr || session->since() < oldest->since()) oldest = session;
  }
  if (oldest == nullptr) return;
  sessions.erase(oldest->id_);
  oldest->close();
}

Listener::Listener(AccessRules rules, ListenerLimits limits, Handler handler)
    : state_(std::make_shared<State>(std::move(rules), limits, std::move(handler))) {}

Listener::~Listener() {
  for (const auto& socket : state_->sockets) {
    if (!socket->path.empty()) (void)::unlink(socket->path.c_str());
  }
}

Status Listener::listen_tcp(const Endpoint& endpoint) {
  sockaddr_storage storage{};
  const auto& bytes = endpoint.address.bytes;
  const bool v4 = endpoint.address.text().find(':') == std::string::npos;
  socklen_t length = 0;
  if (v4) {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(endpoint.port);
    std::memcpy(&four.sin_addr, bytes.data() + 12, 4);
    std::memcpy(&storage, &four, length = sizeof four);
  } else {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(endpoint.port);
    std::memcpy(&six.sin6_addr, bytes.data(), bytes.size());
    std::memcpy(&storage, &six, length = sizeof six);
  }
  const std::string where = endpoint.address.text() + " port " + std::to_string(endpoint.port);
  OwnedFd fd(::socket(v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return errno_error("socket", where, errno);
  const int on = 1;
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  auto* const address = reinterpret_cast<sockaddr*>(&storage);  // as POSIX wants it
  if (::bind(fd.get(), address, length) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) {
      return make_error(ErrorCode::kUnavailable, where + ": somebody else listens there");
    }
    return errno_error("listen", where, errno);
  }
  if (::getsockname(fd.get(), address, &length) == 0) {
    sockaddr_in any{};
    std::memcpy(&any, &storage, sizeof any);
    port_ = ntohs(any.sin_port);  // at the same place in both kinds
  }
  auto socket = std::make_unique<State::Socket>(state_->io);
  socket->descriptor.assign(fd.release());
  state_->accept_when_ready(*socket);
  state_->sockets.push_back(std::move(socket));
  return {};
}

namespace {

Status check_socket_folder(const std::string& path) {
  const std::string folder = parent_path(path);
  struct stat info{};
  if (::stat(folder.c_str(), &info) != 0) return errno_error("stat", folder, errno);
  const bool sticky = (info.st_mode & S_ISVTX) != 0;
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !sticky) {
    return make_error(ErrorCode::kInvalidArgument,
                      "server.unix_socket: others may write to " + folder +
                          ", so they could put a socket of theirs in its place");
  }
  return {};
}

/// A socket that nobody listens on any more is removed.
Status clear_place(const std::string& path, const sockaddr_un& address) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? Status() : errno_error("lstat", path, errno);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "server.unix_socket: " + path + " is another kind of file; it stays");
  }
  const OwnedFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto* const target = reinterpret_cast<const sockaddr*>(&address);  // as POSIX wants it
  if (::connect(probe.get(), target, sizeof address) == 0 || errno == EAGAIN) {
    return make_error(ErrorCode::kUnavailable,
                      "server.unix_socket: " + path + ": somebody else answers there");
  }
  if (::unlink(path.c_str()) != 0) return errno_error("unlink", path, errno);
  return {};
}

}  // namespace

Status Listener::listen_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return make_error(ErrorCode::kInvalidArgument,
                      "server.unix_socket: " + path + ": longer than the kernel takes");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  EVALCAR_RETURN_IF_ERROR(check_socket_folder(path));
  EVALCAR_RETURN_IF_ERROR(clear_place(path, address));
  OwnedFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return errno_error("socket", path, errno);
  const auto* const target = reinterpret_cast<const sockaddr*>(&address);  // as POSIX wants it
  if (::bind(fd.get(), target, sizeof address) != 0) return errno_error("bind", path, errno);
  // Who may connect is decided by the peer's uid, not by the file's mode.
  if (::chmod(path.c_str(), 0666) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return errno_error("listen", path, errno);
  }
  auto socket = std::make_unique<State::Socket>(state_->io);
  socket->local = true;
  socket->path = path;
  socket->descriptor.assign(fd.release());
  state_->accept_when_ready(*socket);
  state_->sockets.push_back(std::move(socket));
  return {};
}

void Listener::run() { state_->io.run(); }
void Listener::stop() { state_->io.stop(); }
void Listener::post(std::function<void()> work) { asio::post(state_->io, std::move(work)); }

void Listener::broadcast(const std::string& topic, std::string event) {
  auto shared = std::make_shared<const std::string>(std::move(event));
  asio::post(state_->io, [state = state_.get(), topic, shared] {
    const auto streams = state->streams;  // sending may end one
    for (const auto& [id, weak] : streams) {
      const auto session = weak.lock();
      if (session != nullptr && session->topic() == topic) session->send(shared);
    }
  });
}

std::size_t Listener::streams() const {
  return state_->topics.with([](const auto& topics) { return topics.size(); });
}

std::vector<std::string> Listener::topics() const {
  return state_->topics.with([](const auto& topics) {
    std::set<std::string> all;
    for (const auto& [id, topic] : topics) all.insert(topic);
    return std::vector<std::string>(all.begin(), all.end());
  });
}

}  // namespace evalcar::http
