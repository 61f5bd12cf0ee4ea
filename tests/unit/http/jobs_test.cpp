#include "agent/http/jobs.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "store/base/file_system.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/temporary_directory.h"

using namespace evalcar;
using namespace evalcar::http;
using test::FakeClock;
using test::TemporaryDirectory;
using Json = nlohmann::json;

namespace {

/// A book on disk, a desk, and the jobs over both; begun again as after a restart.
struct Office {
  TemporaryDirectory folder;
  FakeClock clock;
  RealFileSystem files;
  std::unique_ptr<request::JobDesk> desk;
  std::unique_ptr<Jobs> jobs;

  explicit Office(JobLimits limits = {}) { begin(limits); }
  void begin(JobLimits limits = {}) {
    jobs.reset();
    desk = std::make_unique<request::JobDesk>();
    auto book = state::JobBook::open(files, folder / "run.db.jobs");
    REQUIRE(book.has_value());
    auto begun = Jobs::begin(clock, *desk, std::move(book).value(), limits);
    REQUIRE(begun.has_value());
    jobs = std::move(begun).value();
  }
  std::string submit() {
    Wish wish;
    wish.plan.checkpoint = "/run/checkpoint-5";
    wish.plan.settings.tasks = {"docvqa_val"};
    wish.request = R"({"model":"m","tasks":["docvqa_val"]})";
    wish.notes = {"x=1: not known here"};
    const Response answer = jobs->submit(std::move(wish), {});
    if (answer.status != 200) return std::to_string(answer.status);
    return Json::parse(answer.body)["job_id"].get<std::string>();
  }
  Json info(const std::string& id) { return Json::parse(jobs->info(id).body); }
  void tell(const std::string& id, const std::string& status, const std::string& reason = "") {
    desk->tell({.id = id, .status = status, .reason = reason});
  }
};

}  // namespace

TEST_CASE("a submitted job is queued, remembered and on the desk") {
  Office office;
  const std::string first = office.submit();
  const std::string second = office.submit();
  const Json info = office.info(second);

  CHECK(is_job_id(first));
  CHECK(first != second);
  CHECK(info["status"] == "queued");
  CHECK(info["position_in_queue"] == 1);
  CHECK(info["request"]["model"] == "m");
  CHECK(info["started_at"].is_null());
  CHECK(info["result"].is_null());
  CHECK(info["notes"][0] == "x=1: not known here");
  REQUIRE(office.desk->open_jobs().size() == 2);
  CHECK(office.desk->open_jobs()[0].plan.id == first);
  const Json queue = Json::parse(office.jobs->queue().body);
  CHECK(queue["queue_size"] == 2);
  CHECK(queue["queued_jobs"] == Json{first, second});
  CHECK(queue["running_job"].is_null());
}

TEST_CASE("what the loop tells is what clients see, and ends stay") {
  Office office;
  const std::string id = office.submit();
  const std::string other = office.submit();
  office.desk->tell({.id = id,
                     .status = "running",
                     .stage = "evaluating",
                     .task = "docvqa_val",
                     .done = 3,
                     .total = 12,
                     .eta_s = 60});
  Json info = office.info(id);
  CHECK(info["status"] == "running");
  CHECK(info["progress"]["fraction"] == 0.25);
  CHECK(info["progress"]["eta_s"] == 60);
  CHECK_FALSE(info["started_at"].is_null());
  CHECK(Json::parse(office.jobs->queue().body)["running_job"] == id);
  CHECK(office.info(other)["position_in_queue"] == 0);

  office.desk->tell({.id = id,
                     .status = "completed",
                     .result = R"({"m":{"results":"r","samples":[]}})",
                     .details = R"({"metrics":{"docvqa_val":{"anls":0.5}}})"});
  office.tell(other, "failed", "it broke\nlast line");
  info = office.info(id);
  CHECK(info["status"] == "completed");
  CHECK(info["result"]["m"]["results"] == "r");
  CHECK(info["metrics"]["docvqa_val"]["anls"] == 0.5);
  CHECK(info["notes"].size() == 1);
  CHECK(office.info(other)["error"] == "it broke\nlast line");
  office.tell(id, "failed", "too late");
  CHECK(office.info(id)["status"] == "completed");
  const Json queue = Json::parse(office.jobs->queue().body);
  CHECK(queue["completed_jobs"] == 1);
  CHECK(queue["failed_jobs"] == 1);
}

TEST_CASE("jobs outlive the process, with their numbers and their place") {
  Office office;
  const std::string done = office.submit();
  const std::string running = office.submit();
  const std::string queued = office.submit();
  office.tell(done, "completed");
  office.tell(running, "running");
  office.jobs->take_news();

  office.begin();

  CHECK(office.info(done)["status"] == "completed");
  CHECK(office.info(running)["status"] == "running");
  CHECK(office.info(queued)["status"] == "queued");
  REQUIRE(office.desk->open_jobs().size() == 2);
  CHECK(office.desk->open_jobs()[0].plan.id == running);
  CHECK(office.desk->open_jobs()[1].plan.checkpoint == "/run/checkpoint-5");
  office.tell(running, "queued", "waits again");
  CHECK(office.info(running)["status"] == "queued");
}

TEST_CASE("a job can be cancelled while it waits and while it runs, not afterwards") {
  Office office;
  const std::string waiting = office.submit();
  const std::string running = office.submit();
  office.tell(running, "running");

  CHECK(office.jobs->cancel(waiting).body == "{\"message\":\"Job " + waiting + " cancelled\"}");
  CHECK(office.jobs->cancel(running).status == 200);
  CHECK(office.desk->open_jobs()[1].cancelled);
  office.tell(running, "completed");  // it was quicker
  CHECK(office.info(running)["status"] == "cancelled");
  const Response again = office.jobs->cancel(waiting);
  CHECK(again.status == 400);
  CHECK(again.body == R"({"detail":"Job already finished or cancelled"})");
  CHECK(Json::parse(office.jobs->queue().body)["queue_size"] == 0);
}

TEST_CASE("a flood is answered with 429 past the cap, and what was accepted stays") {
  Office office({.open = 5});
  for (int i = 0; i < 5; ++i) CHECK(is_job_id(office.submit()));
  CHECK(office.submit() == "429");
  const std::string first = office.desk->open_jobs()[0].plan.id;
  CHECK(office.jobs->cancel(first).status == 200);
  CHECK(is_job_id(office.submit()));
}

TEST_CASE("ids that are none are not found, whatever they are") {
  Office office;
  for (const std::string& id :
       {std::string("../../etc/passwd"), std::string(1'000'000, 'x'), std::string("<script>"),
        std::string("00000000-0000-4000-8000-00000000000"),
        std::string("00000000-0000-4000-8000-000000000000"), std::string()}) {
    const Response answer = office.jobs->info(id);
    CHECK(answer.status == 404);
    CHECK(answer.body.size() < 200);
    CHECK(office.jobs->cancel(id).status == 404);
  }
}

TEST_CASE("of ended jobs only the newest are remembered") {
  Office office;
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(office.submit());
    office.tell(ids.back(), "completed");
    office.jobs->take_news();
    office.clock.advance(std::chrono::seconds(1));
  }

  office.begin({.ended = 2});

  CHECK(office.jobs->info(ids[1]).status == 404);
  CHECK(office.info(ids[3])["status"] == "completed");
}

TEST_CASE("a book that is damaged is set aside, and the server starts all the same") {
  TemporaryDirectory folder;
  RealFileSystem files;
  const std::string path = folder / "run.db.jobs";
  REQUIRE(write_file_atomically(files, path, std::string(8'192, 'x')).has_value());

  const auto book = state::JobBook::open(files, path);

  REQUIRE(book.has_value());
  CHECK((*book)->set_aside().find(path + ".damaged") != std::string::npos);
  CHECK((*book)->count("queued").value() == 0);
}
