#include "agent/http/message.h"

#include <nlohmann/json.hpp>

namespace evalcar::http {

std::string Peer::text() const {
  if (!local_socket) return remote.text();
  return "pid " + std::to_string(pid) + " of uid " + std::to_string(uid);
}

Response error_response(unsigned status, std::string_view detail) {
  Response response;
  response.status = status;
  response.body = nlohmann::json{{"detail", detail}}.dump(-1, ' ', false,
                                                          nlohmann::json::error_handler_t::replace);
  return response;
}

}  // namespace evalcar::http
