#include "agent/http/routes.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "store/base/file_system.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/temporary_directory.h"

using namespace evalcar;
using namespace evalcar::http;
using namespace evalcar::test;

namespace {

/// Everything that routes need, with nothing in it.
struct Office {
  FakeClock clock;
  TemporaryDirectory folder;
  RealFileSystem files;
  request::JobDesk desk;
  std::unique_ptr<Jobs> jobs =
      Jobs::begin(clock, desk, state::JobBook::open(files, folder / "jobs").value()).value();

  Sources sources(std::vector<std::string> models = {}) {
    return {clock,
            [] { return std::vector<std::string>{"docvqa_val", "mmmu_val"}; },
            std::move(models),
            jobs.get(),
            nullptr,
            {.checkpoints = {Places(files, {folder.path()}), {}, "checkpoint-{step}"},
             .tasks = {"docvqa_val", "mmmu_val"}}};
  }
};

Response ask(Routes& routes, const std::string& method, const std::string& path) {
  Request request;
  request.head.method = method;
  request.path = path;
  Response answer{.status = 0};
  routes.handle(request, [&](Response response) { answer = std::move(response); });
  return answer;
}

}  // namespace

TEST_CASE("tasks and models are listed as lmms-eval's server lists them") {
  Office office;
  Routes routes(office.sources({"qwen2_5_vl"}));

  CHECK(ask(routes, "GET", "/tasks").body == R"({"tasks":["docvqa_val","mmmu_val"]})");
  CHECK(ask(routes, "GET", "/models").body == R"({"models":["qwen2_5_vl"]})");
}

TEST_CASE("tasks that cannot be listed are told as an error with code 200") {
  Office office;
  Sources sources = office.sources();
  sources.tasks = []() -> Result<std::vector<std::string>> {
    return make_error(ErrorCode::kInvalidArgument, "x.toml: wrong");
  };
  Routes routes(std::move(sources));
  const Response answer = ask(routes, "GET", "/tasks");

  CHECK(answer.status == 200);
  CHECK(answer.body == R"({"tasks":[],"error":"x.toml: wrong"})");
}

TEST_CASE("what is not there and what is not allowed are answered as FastAPI answers") {
  Office office;
  Routes routes(office.sources());

  CHECK(ask(routes, "GET", "/nothing").status == 404);
  CHECK(ask(routes, "GET", "/nothing").body == R"({"detail":"Not Found"})");
  const Response wrong = ask(routes, "POST", "/health");
  CHECK(wrong.status == 405);
  CHECK(wrong.body == R"({"detail":"Method Not Allowed"})");
  CHECK(wrong.fields.front() == std::pair<std::string, std::string>("Allow", "GET"));
}

TEST_CASE("health tells what stands in the way, and stays what lmms-eval's clients ask for") {
  Office office;
  Sources sources = office.sources();
  std::string warning = "no CUDA device";
  sources.warning = [&] { return warning; };
  Routes routes(std::move(sources));

  const auto hindered = nlohmann::json::parse(ask(routes, "GET", "/health").body);
  CHECK(hindered["status"] == "healthy");
  CHECK(hindered["warning"] == "no CUDA device");
  warning.clear();
  CHECK_FALSE(nlohmann::json::parse(ask(routes, "GET", "/health").body).contains("warning"));
}

TEST_CASE("health tells a time as Python's isoformat does") {
  Office office;
  Routes routes(office.sources());
  const auto health = nlohmann::json::parse(ask(routes, "GET", "/health").body);

  CHECK(health["status"] == "healthy");
  CHECK(health["queue_size"] == 0);
  CHECK(health["timestamp"].get<std::string>().size() >= 19);
  const WallTime moment{std::chrono::microseconds(1'000'042)};
  CHECK(naive_local_time(moment).ends_with(":01.000042"));
  CHECK(naive_local_time(WallTime{std::chrono::seconds(7)}).ends_with(":07"));
}
