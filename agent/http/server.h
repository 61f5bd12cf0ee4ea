// The server's own thread: nothing that it does or waits for holds up whoever started it.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/config/settings.h"
#include "agent/http/listener.h"
#include "store/base/file_system.h"

namespace evalcar::http {

/// The section [server], checked.
struct ServerPlan {
  std::vector<Endpoint> endpoints;
  std::string unix_socket;
  AccessRules rules;
  ListenerLimits limits;
  bool serves() const { return !endpoints.empty() || !unix_socket.empty(); }
};

/// kInvalidArgument: names the key. An address that is not loopback needs a token.
Result<ServerPlan> plan_server(const FileSystem& files, const config::ServerSettings& settings);

/// Answers until it is destroyed. The handler runs in its thread.
class Server {
 public:
  /// Listens, so that nobody else can, but answers nothing before serve().
  static Result<std::unique_ptr<Server>> bind(const ServerPlan& plan, Handler handler);
  /// Begins to answer. Once.
  void serve();
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  /// In the server's thread, soon; from any thread.
  void post(std::function<void()> work) { listener_.post(std::move(work)); }
  /// From any thread.
  void broadcast(const std::string& topic, std::string event) {
    listener_.broadcast(topic, std::move(event));
  }
  std::vector<std::string> topics() const { return listener_.topics(); }
  std::uint16_t port() const { return listener_.port(); }

 private:
  Server(const ServerPlan& plan, Handler handler);
  Listener listener_;
  std::thread thread_;
};

}  // namespace evalcar::http
