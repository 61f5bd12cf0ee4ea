#include "agent/http/page_routes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "agent/http/fields.h"
#include "agent/http/json_body.h"
#include "agent/page/page_file.h"
#include "agent/page/sample_list.h"

namespace evalcar::http {
namespace {

constexpr std::int64_t kMostOffset = 1'000'000'000;
constexpr std::string_view kPictures = "/page/pictures/";
/// A browser asks for it by itself where a page may show pictures. There is none.
constexpr std::string_view kIcon = "/favicon.ico";

Response page_response() {
  const page::LivePage& page = page::live_page();
  Response response;
  response.body = page.html;
  response.content_type = "text/html; charset=utf-8";
  response.fields = {{"Content-Security-Policy", page.policy},
                     {"Referrer-Policy", "no-referrer"},
                     {"Cross-Origin-Opener-Policy", "same-origin"},
                     {"Cross-Origin-Resource-Policy", "same-origin"}};
  return response;
}

/// A question that cannot be answered now (the database is busy or damaged) is no fault of the
/// asker.
Response json_response(Result<std::string> json) {
  if (json.has_value()) return {.body = std::move(*json)};
  const bool none = json.error().code == ErrorCode::kNotFound;
  return error_response(none ? 404 : 503, json.error().message);
}

/// What is under a name never changes. Opened by itself it is a picture and nothing else.
Response picture_response(Result<std::string> jpeg) {
  if (!jpeg.has_value()) return error_response(404, jpeg.error().message);
  Response response;
  response.body = std::move(*jpeg);
  response.content_type = "image/jpeg";
  response.fields = {{"Cache-Control", "private, max-age=31536000, immutable"},
                     {"Content-Security-Policy", "default-src 'none'; sandbox"},
                     {"Cross-Origin-Resource-Policy", "same-origin"}};
  return response;
}

std::string field(const Request& request, const char* name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? "" : found->second;
}

/// "" is 0.
std::optional<std::int64_t> number(const std::string& text, std::int64_t most) {
  std::int64_t value = 0;
  if (text.empty()) return value;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end || value < 0 || value > most) {
    return std::nullopt;
  }
  return value;
}

std::optional<page::SampleFilter> filter_of(const std::string& text) {
  if (text.empty() || text == "all") return page::SampleFilter::kAll;
  if (text == "wrong") return page::SampleFilter::kWrong;
  if (text == "flipped") return page::SampleFilter::kFlipped;
  return std::nullopt;
}

/// What the page may ask of the agent.
struct Change {
  std::string_view path;
  const char* field;  ///< of the body: a number; nullptr: none is needed
  const char* what;
  request::Request (*request)(std::int64_t number);
};
constexpr std::array kChanges = {
    Change{"/page/retry", "step", "a step",
           [](std::int64_t step) { return request::Request{request::Retry{step}}; }},
    Change{"/page/cancel", "evaluation", "its number",
           [](std::int64_t number) { return request::Request{request::Cancel{number}}; }},
    Change{"/page/pin", "step", "a step",
           [](std::int64_t step) { return request::Request{request::Pin{step, false}}; }},
    Change{"/page/unpin", "step", "a step",
           [](std::int64_t step) { return request::Request{request::Pin{step, true}}; }},
    Change{"/page/backfill", nullptr, "",
           [](std::int64_t) { return request::Request{request::Backfill{}}; }},
};

const Change* change_of(std::string_view path) {
  const auto* const found = std::ranges::find(kChanges, path, &Change::path);
  return found == kChanges.end() ? nullptr : found;
}

Response wrong(const std::string& what) { return error_response(422, what); }

Response change_response(Result<request::Answer> answer) {
  if (!answer.has_value()) return error_response(503, answer.error().message);
  const char* const outcome = answer->outcome == request::Outcome::kDone      ? "done"
                              : answer->outcome == request::Outcome::kNothing ? "nothing"
                                                                              : "failed";
  const nlohmann::json json = {
      {"outcome", outcome}, {"text", answer->text}, {"more", answer->more}};
  return {.body = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

}  // namespace

std::string event_text(const std::string& json) { return "data: " + json + "\n\n"; }

bool PageRoutes::handle(const Request& request, const Respond& respond) {
  const std::string& path = request.path;
  const bool changes = change_of(path) != nullptr;
  const bool shows = path == "/" || path == "/page/data" || path == "/page/events" ||
                     path == "/page/samples" || path == kIcon || path.starts_with(kPictures);
  if (!changes && !shows) return false;
  const char* const method = changes ? "POST" : "GET";
  if (request.head.method != method) {
    Response response = error_response(405, "Method Not Allowed");
    response.fields.emplace_back("Allow", method);
    respond(std::move(response));
  } else if (path == "/") {
    respond(page_response());
  } else if (path == "/page/data") {
    data(request, respond);
  } else if (path == "/page/events") {
    events(request, respond);
  } else if (path == "/page/samples") {
    samples(request, respond);
  } else if (path == kIcon) {
    respond({.status = 204});
  } else if (path.starts_with(kPictures)) {
    picture(request, respond);
  } else {
    change(request, respond);
  }
  return true;
}

void PageRoutes::later(Worker& worker, const Respond& respond, std::function<Response()> make) {
  const bool taken = worker.take([respond, make = std::move(make)] { respond(make()); });
  if (!taken) respond(error_response(503, "too many questions wait already"));
}

void PageRoutes::data(const Request& request, const Respond& respond) {
  later(parts_.worker, respond,
        [this, run = field(request, "run"), since = field(request, "since")] {
          return json_response(parts_.runs.page_data(run, since));
        });
}

void PageRoutes::events(const Request& request, const Respond& respond) {
  later(parts_.worker, respond, [this, run = field(request, "run")] {
    auto news = parts_.runs.page_news(run);
    if (!news.has_value()) return json_response(news.error());
    Response response;
    response.topic = news->run;
    response.body = event_text(news->json);
    return response;
  });
}

void PageRoutes::samples(const Request& request, const Respond& respond) {
  page::SampleQuery query;
  query.run = field(request, "run");
  query.task = field(request, "task");
  query.metric = field(request, "metric");
  const auto evaluation = number(field(request, "evaluation"), INT64_MAX);
  const auto offset = number(field(request, "offset"), kMostOffset);
  const auto filter = filter_of(field(request, "filter"));
  if (!evaluation.has_value()) return respond(wrong("evaluation: expected its number"));
  if (!offset.has_value()) return respond(wrong("offset: expected a number up to 1000000000"));
  if (!filter.has_value()) return respond(wrong("filter: expected all, wrong or flipped"));
  query.evaluation = *evaluation;
  query.offset = *offset;
  query.filter = *filter;
  later(parts_.worker, respond,
        [this, query] { return json_response(parts_.runs.samples(query, parts_.pictures)); });
}

void PageRoutes::picture(const Request& request, const Respond& respond) {
  later(parts_.worker, respond, [this, name = request.path.substr(kPictures.size())] {
    return picture_response(parts_.pictures.read(name));
  });
}

/// Only what says that it is JSON: a page of another site can send anything else without asking.
void PageRoutes::change(const Request& request, const Respond& respond) {
  if (!request.head.content_type.starts_with("application/json")) {
    return respond(not_json(
        make_error(ErrorCode::kInvalidArgument, "the Content-Type has to be application/json")));
  }
  const auto body = parse_body(request.body);
  if (!body.has_value()) return respond(not_json(body.error()));
  const Change& wanted = *change_of(request.path);
  Fields fields(*body);
  const std::string run = fields.text("run");
  const std::int64_t number = wanted.field == nullptr ? 0 : fields.integer(wanted.field, -1);
  if (fields.good() && number < 0) {
    fields.refuse(wanted.field, "expected " + std::string(wanted.what));
  }
  if (!fields.good()) return respond(fields.response());
  later(parts_.asker, respond, [this, run, asked = wanted.request(number)] {
    const auto database = parts_.runs.database_of(run);
    if (!database.has_value()) return json_response(database.error());
    return change_response(parts_.ask_agent(*database, asked));
  });
}

}  // namespace evalcar::http
