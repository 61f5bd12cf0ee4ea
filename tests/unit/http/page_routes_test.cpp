#include "agent/http/page_routes.h"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <future>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::http;

namespace {

Request post(const std::string& path, const std::string& body) {
  Request request;
  request.head.method = "POST";
  request.head.content_type = "application/json";
  request.path = path;
  request.body = body;
  return request;
}

Request get(const std::string& path) {
  Request request;
  request.head.method = "GET";
  request.path = path;
  return request;
}

/// The routes over a board, with an agent that answers when it is told to.
struct Page {
  test::FakeClock clock;
  publish::LiveBoard board;
  LiveRuns runs{clock, board};
  std::vector<std::string> asked;  ///< by the asker's thread, one at a time
  std::promise<void> let_go;
  std::shared_future<void> gone{let_go.get_future()};
  test::MemoryFileSystem files{clock};
  Worker worker{4};
  Worker asker{1};
  PageRoutes routes{{worker, runs, asker,
                     [this](const std::string&, const request::Request& request) {
                       gone.wait();
                       asked.push_back(request::encode(request));
                       return Result<request::Answer>(
                           request::Answer{request::Outcome::kDone, "again"});
                     },
                     page::SamplePictures(files, "/state/sample-pictures")}};
  std::future<Response> ask(const Request& request) {
    auto answer = std::make_shared<std::promise<Response>>();
    REQUIRE(routes.handle(request,
                          [answer](Response response) { answer->set_value(std::move(response)); }));
    return answer->get_future();
  }
};

}  // namespace

TEST_CASE("who reads the page does not wait for a retry that the agent has not answered") {
  Page page;
  page.board.tell({"/out", "/state/run.db", "run-1", {}});

  auto retried = page.ask(post("/page/retry", R"({"run":"run-1","step":5})"));
  auto read = page.ask(get("/page/data"));

  const bool answered = read.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
  const bool still_asked = retried.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  page.let_go.set_value();
  CHECK(answered);
  CHECK(still_asked);
  CHECK(read.get().status == 503);  // there is no such database, and that is said at once
  const Response response = retried.get();
  CHECK(response.status == 200);
  CHECK(response.body == R"({"more":false,"outcome":"done","text":"again"})");
}

TEST_CASE("retries that wait for the agent are bounded") {
  Page page;
  page.board.tell({"/out", "/state/run.db", "run-1", {}});
  std::vector<std::future<Response>> asked;
  for (int i = 0; i < 8; ++i) {
    asked.push_back(page.ask(post("/page/retry", R"({"run":"run-1","step":5})")));
  }

  page.let_go.set_value();

  int full = 0;
  for (auto& answer : asked) full += answer.get().status == 503 ? 1 : 0;
  CHECK(full >= 6);  // one is asked, one waits
  CHECK(full <= 7);
}

TEST_CASE("a page that is opened before there is a run is told so, which is no error") {
  Page page;
  page.let_go.set_value();
  const Request request = get("/page/data");

  CHECK(page.ask(request).get().body == R"({"run":"","runs":[]})");

  page.board.tell({"/out", "/state/run.db", "", {}});  // an output directory that is not there yet
  const Response response = page.ask(request).get();
  CHECK(response.status == 200);
  CHECK(response.body == R"({"run":"","runs":[]})");
}

TEST_CASE("a picture of a sample is served as a picture that never changes, and as nothing else") {
  Page page;
  page.let_go.set_value();
  const std::string name = std::string(64, 'a') + ".jpg";
  const std::string jpeg = "\xFF\xD8\xFF\xE0 pixels \xFF\xD9";
  page.files.put_file("/state/sample-pictures/aa/" + name, jpeg);

  const Response response = page.ask(get("/page/pictures/" + name)).get();

  CHECK(response.status == 200);
  CHECK(response.content_type == "image/jpeg");
  CHECK(response.body == jpeg);
  const std::map<std::string, std::string> fields(response.fields.begin(), response.fields.end());
  CHECK(fields.at("Cache-Control") == "private, max-age=31536000, immutable");
  CHECK(fields.at("Content-Security-Policy") == "default-src 'none'; sandbox");
  CHECK(fields.at("Cross-Origin-Resource-Policy") == "same-origin");
}

TEST_CASE("no other path leads out of the folder of pictures") {
  Page page;
  page.let_go.set_value();
  const std::string jpeg = "\xFF\xD8\xFF\xE0 pixels \xFF\xD9";
  const std::string name = std::string(64, 'a') + ".jpg";
  page.files.put_file("/state/secret.jpg", jpeg);
  page.files.put_file("/state/sample-pictures/secret.jpg", jpeg);
  for (const std::string& rest : std::vector<std::string>{
           "", "secret.jpg", "../secret.jpg", "aa/../../secret.jpg", name, "aa/" + name}) {
    INFO(rest);
    const Response response = page.ask(get("/page/pictures/" + rest)).get();
    CHECK(response.status == 404);
    CHECK(response.content_type == "application/json");
    CHECK(response.fields.empty());  // and nobody remembers it
  }
  CHECK(page.ask(get("/favicon.ico")).get().status == 204);  // asked for by itself, and no error
  const Response posted = page.ask(post("/page/pictures/" + name, "{}")).get();
  CHECK(posted.status == 405);
}

TEST_CASE("a backfill is asked for with the run alone, and says whether there is more") {
  Page page;
  page.board.tell({"/out", "/state/run.db", "run-1", {}});
  page.let_go.set_value();

  const Response response = page.ask(post("/page/backfill", R"({"run":"run-1"})")).get();

  CHECK(response.status == 200);
  CHECK(response.body == R"({"more":false,"outcome":"done","text":"again"})");
  CHECK(page.asked == std::vector<std::string>{request::encode(request::Backfill{})});
  CHECK(page.ask(post("/page/backfill", R"({"run":"other"})")).get().status == 404);
  CHECK(page.ask(post("/page/backfill", "{}")).get().status == 422);
  CHECK(page.ask(get("/page/backfill")).get().status == 405);
}
