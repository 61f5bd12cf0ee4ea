#include "agent/http/server.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

namespace evalcar::http {
namespace {

Error bad_key(std::string_view key, const std::string& why) {
  return make_error(ErrorCode::kInvalidArgument, "server." + std::string(key) + ": " + why);
}

}  // namespace

Result<ServerPlan> plan_server(const FileSystem& files, const config::ServerSettings& settings) {
  ServerPlan plan;
  if (!settings.listen.empty()) {
    const auto endpoint = parse_endpoint(settings.listen);
    if (!endpoint.has_value()) return bad_key("listen", endpoint.error().message);
    plan.endpoints.push_back(*endpoint);
  }
  plan.unix_socket = settings.unix_socket;
  for (const std::string& text : settings.allow_from) {
    const auto network = parse_network(text);
    if (!network.has_value()) return bad_key("allow_from", network.error().message);
    plan.rules.allow_from.push_back(*network);
  }
  for (const std::string& text : settings.allowed_hosts) {
    const bool plain_v6 = text.find(':') != text.rfind(':') && !text.starts_with('[');
    const auto name = host_name(plain_v6 ? "[" + text + "]" : text);
    if (!name.has_value()) return bad_key("allowed_hosts", name.error().message);
    plan.rules.hosts.push_back(*name);
  }
  if (!settings.token_file.empty()) {
    EVALCAR_ASSIGN_OR_RETURN(plan.rules.token, read_token(files, settings.token_file));
  }
  for (const Endpoint& endpoint : plan.endpoints) {
    if (!endpoint.address.is_loopback() && plan.rules.token.empty()) {
      return bad_key("token_file",
                     "needed to listen on " + endpoint.address.text() +
                         ", which others can reach; `openssl rand -hex 24` makes a token");
    }
  }
  plan.rules.uids = {static_cast<std::uint32_t>(::getuid()), 0};
  plan.limits.idle_time = settings.idle_timeout;
  return plan;
}

Server::Server(const ServerPlan& plan, Handler handler)
    : listener_(plan.rules, plan.limits, std::move(handler)) {}

Result<std::unique_ptr<Server>> Server::bind(const ServerPlan& plan, Handler handler) {
  std::unique_ptr<Server> server(new Server(plan, std::move(handler)));
  for (const Endpoint& endpoint : plan.endpoints) {
    EVALCAR_RETURN_IF_ERROR(server->listener_.listen_tcp(endpoint));
    const std::string host = endpoint.address.text();
    const bool v6 = host.find(':') != std::string::npos;
    spdlog::info("serving on http://{}{}{}:{}{}", v6 ? "[" : "", host, v6 ? "]" : "",
                 server->listener_.port(), plan.rules.token.empty() ? "" : ", with a token");
  }
  if (!plan.unix_socket.empty()) {
    EVALCAR_RETURN_IF_ERROR(server->listener_.listen_unix(plan.unix_socket));
    spdlog::info("serving on {}", plan.unix_socket);
  }
  return server;
}

void Server::serve() {
  thread_ = std::thread([&listener = listener_] { listener.run(); });
}

Server::~Server() {
  listener_.stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace evalcar::http
