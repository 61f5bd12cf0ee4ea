#include "agent/http/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <set>
#include <utility>

#include "agent/http/listener_state.h"
#include "agent/http/listening_socket.h"

namespace evalcar::http {
namespace {

using supervise::OwnedFd;

constexpr int kAcceptsATurn = 64;
/// No descriptor is left: the ones that end meanwhile make room.
constexpr std::chrono::milliseconds kAcceptPause{200};

bool somebody_waits(int listening) {
  pollfd look{listening, POLLIN, 0};
  return ::poll(&look, 1, 0) > 0;
}

}  // namespace

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
    // Linux takes a descriptor before it looks whether anybody waits: for nobody no room is made.
    if (errno == EAGAIN || !somebody_waits(socket.descriptor.native_handle())) break;
    // No descriptor or no memory: asking again at once would spin.
    make_room();
    socket.pause.expires_after(kAcceptPause);
    return socket.pause.async_wait([this, &socket](beast::error_code error) {
      if (!error) accept_when_ready(socket);
    });
  }
  accept_when_ready(socket);
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
  (void)stream.socket().assign(asio::generic::stream_protocol(family, local ? 0 : IPPROTO_TCP), fd,
                               error);
  if (error) return;
  (void)owned.release();
  const std::uint64_t id = next_session++;
  auto session = std::make_shared<Session>(*this, id, std::move(stream), peer);
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
  EVALCAR_ASSIGN_OR_RETURN(OwnedFd fd, listen_on(endpoint, port_));
  auto socket = std::make_unique<State::Socket>(state_->io);
  socket->descriptor.assign(fd.release());
  state_->accept_when_ready(*socket);
  state_->sockets.push_back(std::move(socket));
  return {};
}

Status Listener::listen_unix(const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(OwnedFd fd, listen_at(path));
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
