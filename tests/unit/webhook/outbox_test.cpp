#include "agent/webhook/outbox.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "store/base/hash.h"
#include "tests/unit/state/scenario.h"
#include "tests/unit/webhook/fake_poster.h"

using namespace evalcar;
using namespace evalcar::webhook;
using test::comes_true;
using test::must;

namespace {

struct Post {
  test::Scenario s;
  test::Receiver receiver;
  std::unique_ptr<Outbox> outbox;
  std::string url = "http://127.0.0.1/hook";

  void open() {
    outbox.reset();
    CourierOptions options;
    options.url = url;
    options.first_pause = std::chrono::milliseconds(1);
    options.longest_pause = std::chrono::milliseconds(2);
    outbox =
        must(Outbox::open(s.files, s.db(), options, std::make_unique<test::FakePoster>(receiver)));
    must(outbox->step(s.run.id));  // before anything is published
  }
  /// Its line is "line N"; finished: its files are written.
  std::int64_t result(std::int64_t step, bool finished = true) {
    const auto id = s.plan(step).id;
    s.bring(id, state::EvaluationState::kScored, "w" + std::to_string(step));
    must(s.store->begin_publication(id, 0, [](std::int64_t seq, const auto&) {
      return Result<std::string>("line " + std::to_string(seq));
    }));
    if (finished) must(s.store->finish_publication(id, {"x"}));
    return id;
  }
  std::vector<std::string> bodies() {
    return receiver.book.with([](auto& book) { return book.bodies; });
  }
  bool delivered() {
    return comes_true([&] {
      must(outbox->step(s.run.id));
      return !outbox->pending();
    });
  }
};

}  // namespace

TEST_CASE("every result is posted once, in the order of the lines, also over a restart") {
  Post post;
  post.open();
  post.result(1);
  post.result(2);
  REQUIRE(post.delivered());
  post.open();
  post.result(3);
  REQUIRE(post.delivered());
  CHECK(post.bodies() == std::vector<std::string>{"line 1", "line 2", "line 3"});
}

TEST_CASE("what was not taken before a stop is posted after it") {
  Post post;
  post.open();
  post.receiver.hangs = true;
  post.result(1);
  must(post.outbox->step(post.s.run.id));
  CHECK(post.outbox->pending());
  post.open();
  post.receiver.hangs = false;
  REQUIRE(post.delivered());
  CHECK(post.bodies() == std::vector<std::string>{"line 1"});
}

TEST_CASE("a new receiver gets what is published from then on") {
  Post post;
  post.result(1);
  post.open();
  post.result(2);
  REQUIRE(post.delivered());
  post.url = "http://127.0.0.1/other";
  post.open();
  REQUIRE(post.delivered());
  post.result(3);
  REQUIRE(post.delivered());
  CHECK(post.bodies() == std::vector<std::string>{"line 2", "line 3"});
}

TEST_CASE("what was taken in the last moment before an end is noted") {
  Post post;
  post.open();
  post.result(1);
  must(post.outbox->step(post.s.run.id));
  REQUIRE(comes_true([&] { return post.receiver.count() == 1; }));
  post.open();
  post.result(2);
  REQUIRE(post.delivered());
  CHECK(post.bodies() == std::vector<std::string>{"line 1", "line 2"});
}

TEST_CASE("a result whose files are not all written goes before those after it") {
  Post post;
  post.open();
  const auto first = post.result(1, false);
  post.result(2);
  must(post.outbox->step(post.s.run.id));
  CHECK_FALSE(post.outbox->pending());
  CHECK(post.bodies().empty());
  must(post.s.store->finish_publication(first, {"x"}));
  REQUIRE(post.delivered());
  CHECK(post.bodies() == std::vector<std::string>{"line 1", "line 2"});
}

TEST_CASE(
    "a result that an earlier life of the directory left unwritten holds up none of this one") {
  Post post;
  post.open();
  post.result(1, false);
  post.s.run = must(post.s.store->ensure_run("run-01234567", "/out/run", 1, 11));
  post.result(2);
  const auto third = post.result(3, false);
  post.result(4);

  REQUIRE(post.delivered());
  CHECK(post.bodies() == std::vector<std::string>{"line 2"});
  must(post.s.store->finish_publication(third, {"x"}));
  REQUIRE(post.delivered());
  CHECK(post.bodies() == std::vector<std::string>{"line 2", "line 3", "line 4"});
}

TEST_CASE("more results than it may hold come all the same") {
  Post post;
  post.open();
  for (std::int64_t step = 1; step <= 40; ++step) post.result(step);
  REQUIRE(post.delivered());
  CHECK(post.bodies().size() == 40);
  CHECK(post.bodies().back() == "line 40");
}

TEST_CASE("a database that was made anew is not waited for to catch up") {
  Post post;
  must(write_file_atomically(
      post.s.files, post.s.db() + ".webhook.json",
      nlohmann::json{{"url_sha256", sha256_hex(post.url)}, {"delivered_seq", 1000}}.dump()));
  post.open();
  post.result(1);
  REQUIRE(post.delivered());
  CHECK(post.bodies() == std::vector<std::string>{"line 1"});
}
