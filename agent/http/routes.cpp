#include "agent/http/routes.h"

#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "agent/http/fields.h"
#include "agent/http/json_body.h"

namespace evalcar::http {
namespace {

using OrderedJson = nlohmann::ordered_json;

Response json_response(const OrderedJson& value) {
  Response response;
  response.body = value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return response;
}

}  // namespace

std::string naive_local_time(WallTime time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  const std::time_t whole = seconds.count();
  std::tm parts{};
  ::localtime_r(&whole, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(since - seconds);
  if (micros.count() == 0) return text.data();  // as Python leaves it out
  std::string fraction = std::to_string(micros.count());
  return std::string(text.data()) + "." + std::string(6 - fraction.size(), '0') + fraction;
}

Routes::Routes(Sources sources) : sources_(std::move(sources)) {
  routes_["/health"]["GET"] = [this](const Request&) { return health(); };
  routes_["/tasks"]["GET"] = [this](const Request&) { return tasks(); };
  routes_["/models"]["GET"] = [this](const Request&) { return models(); };
  routes_["/queue"]["GET"] = [this](const Request&) { return sources_.jobs->queue(); };
  routes_["/merge"];  // POST is answered later: see handle()
  routes_["/evaluate"]["POST"] = [this](const Request& request) { return evaluate(request); };
}

void Routes::handle(const Request& request, const Respond& respond) {
  if (sources_.read != nullptr && sources_.read->handle(request, respond)) return;
  if (sources_.page != nullptr && sources_.page->handle(request, respond)) return;
  constexpr std::string_view kJob = "/jobs/";
  if (request.path.starts_with(kJob) && request.path.size() > kJob.size() &&
      request.path.find('/', kJob.size()) == std::string::npos) {
    return respond(job(request, request.path.substr(kJob.size())));
  }
  if (request.path == "/merge" && request.head.method == "POST") return merge(request, respond);
  const auto path = routes_.find(request.path);
  if (path == routes_.end()) return respond(error_response(404, "Not Found"));
  const auto route = path->second.find(request.head.method);
  if (route != path->second.end()) return respond(route->second(request));
  Response response = error_response(405, "Method Not Allowed");
  std::string allowed = request.path == "/merge" ? "POST" : "";
  for (const auto& [method, known] : path->second) {
    allowed += (allowed.empty() ? "" : ", ") + method;
  }
  response.fields.emplace_back("Allow", allowed);
  respond(std::move(response));
}

/// "healthy" is what lmms-eval's clients ask for before they submit, and means that jobs are taken:
/// those that cannot be measured now wait, and why is told beside it.
Response Routes::health() const {
  OrderedJson health = {{"status", "healthy"},
                        {"timestamp", naive_local_time(sources_.clock.wall_now())},
                        {"queue_size", sources_.jobs->queued()}};
  const std::string warning = sources_.warning ? sources_.warning() : std::string();
  if (!warning.empty()) health["warning"] = warning;
  return json_response(std::move(health));
}

Response Routes::tasks() const {
  const auto names = sources_.tasks();
  if (names.has_value()) return json_response({{"tasks", *names}});
  return json_response({{"tasks", OrderedJson::array()}, {"error", names.error().message}});
}

Response Routes::models() const { return json_response({{"models", sources_.models}}); }

/// Only what says that it is JSON: a page of another site can send anything else without asking.
Response Routes::evaluate(const Request& request) {
  const std::string& type = request.head.content_type;
  if (!type.starts_with("application/json")) {
    return not_json(
        make_error(ErrorCode::kInvalidArgument, "the Content-Type has to be application/json"));
  }
  const auto body = parse_body(request.body);
  if (!body.has_value()) return not_json(body.error());
  auto wish = read_evaluate_request(sources_.rules, *body);
  if (auto* const refused = std::get_if<Response>(&wish)) return std::move(*refused);
  return sources_.jobs->submit(std::move(std::get<Wish>(wish)), request.peer);
}

void Routes::merge(const Request& request, const Respond& respond) {
  if (!request.head.content_type.starts_with("application/json")) {
    return respond(not_json(
        make_error(ErrorCode::kInvalidArgument, "the Content-Type has to be application/json")));
  }
  const auto body = parse_body(request.body);
  if (!body.has_value()) return respond(not_json(body.error()));
  auto plan = read_merge_request(sources_.rules.checkpoints.places(), *body);
  if (auto* const refused = std::get_if<Response>(&plan)) return respond(std::move(*refused));
  sources_.merges->begin(std::move(std::get<MergePlan>(plan)), respond);
}

Response Routes::job(const Request& request, const std::string& id) {
  if (request.head.method == "GET") return sources_.jobs->info(id);
  if (request.head.method == "DELETE") return sources_.jobs->cancel(id);
  Response response = error_response(405, "Method Not Allowed");
  response.fields.emplace_back("Allow", "DELETE, GET");
  return response;
}

}  // namespace evalcar::http
