#include "agent/http/read_routes.h"

#include <utility>

namespace evalcar::http {
namespace {

Response metrics_response(std::string text) {
  Response response;
  response.body = std::move(text);
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return response;
}

}  // namespace

bool ReadRoutes::handle(const Request& request, const Respond& respond) {
  if (request.path != "/metrics") return false;
  if (request.head.method != "GET") {
    Response response = error_response(405, "Method Not Allowed");
    response.fields.emplace_back("Allow", "GET");
    respond(std::move(response));
    return true;
  }
  const bool taken =
      worker_.take([this, respond] { respond(metrics_response(runs_.prometheus())); });
  if (!taken) respond(error_response(503, "too many questions wait already"));
  return true;
}

}  // namespace evalcar::http
