// Both sides of the folder of requests, on files in memory: the pause of the one that asks is where
// the other one works.
#include <catch2/catch_test_macros.hpp>

#include "agent/request/inbox.h"
#include "agent/request/outbox.h"
#include "tests/unit/agent/fake_notifier.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::request;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

const std::string kFolder = "/state/run.db.requests";

struct Post {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  testing::FakeNotifier* notifier = nullptr;
  std::unique_ptr<Inbox> inbox;
  std::vector<std::int64_t> asked;  ///< steps that were carried out
  bool agent_there = true;

  Post() { start(); }
  void start() {
    auto made = std::make_unique<testing::FakeNotifier>();
    notifier = made.get();
    inbox = std::make_unique<Inbox>(files, clock, std::move(made), kFolder);
    (void)step();
  }
  std::size_t step() {
    return inbox->step([this](const Request& request) {
      asked.push_back(std::get<Retry>(request).step);
      return Answer{Outcome::kDone, "done " + std::to_string(asked.back())};
    });
  }
  std::size_t hint_and_step() {
    notifier->hints.folders.insert(kFolder);
    return step();
  }
  Result<Answer> ask(std::int64_t step, const std::function<void()>& meanwhile) {
    AskOptions options;
    options.patience = seconds(10);
    options.agent_there = [this] { return agent_there; };
    options.pause = [&](milliseconds time) {
      clock.advance(time);
      meanwhile();
    };
    return request::ask(files, clock, kFolder, Retry{step}, options);
  }
  void put(const std::string& name, const std::string& text) {
    files.put_file(join_path(kFolder, name), text);
  }
  std::vector<std::string> tree() const { return files.tree(kFolder); }
};

}  // namespace

TEST_CASE("a request is carried out once and answered, and leaves nothing behind") {
  Post post;

  const auto answer = post.ask(500, [&] { (void)post.hint_and_step(); });

  REQUIRE(answer.has_value());
  CHECK(answer->text == "done 500");
  CHECK(post.asked == std::vector<std::int64_t>{500});
  CHECK(post.tree().empty());
}

TEST_CASE("a request is found by a look without a hint where nothing gives hints") {
  Post post;
  post.notifier->works = false;
  (void)post.hint_and_step();
  post.put("1-1.request", encode(Request{Retry{5}}));

  CHECK(post.step() == 0);
  CHECK(post.inbox->until_due() <= seconds(1));
  post.clock.advance(seconds(1));

  CHECK(post.step() == 1);
}

TEST_CASE("an agent that does not react leaves the request withdrawn") {
  Post post;

  const auto answer = post.ask(500, [] {});

  REQUIRE_FALSE(answer.has_value());
  CHECK(answer.error().code == ErrorCode::kUnavailable);
  CHECK(answer.error().message.find("withdrawn") != std::string::npos);
  CHECK(post.tree().empty());
  CHECK(post.hint_and_step() == 0);
}

TEST_CASE("an agent that ends is told at once, and the request is withdrawn") {
  Post post;
  int pauses = 0;

  const auto answer = post.ask(500, [&] { post.agent_there = ++pauses < 3; });

  REQUIRE_FALSE(answer.has_value());
  CHECK(answer.error().code == ErrorCode::kNotFound);
  CHECK(pauses == 3);
  CHECK(post.tree().empty());
}

TEST_CASE("a request that was taken by an agent that was killed is done by the next one") {
  Post post;
  post.put("1-1.taken", encode(Request{Retry{5}}));

  post.start();

  CHECK(post.asked == std::vector<std::int64_t>{5});
  CHECK(post.tree() == std::vector<std::string>{"1-1.answer"});
}

TEST_CASE("a kill at any call of the inbox loses no request") {
  for (std::size_t call = 1; call < 30; ++call) {
    INFO("killed in call " << call);
    Post post;
    post.put("1-1.request", encode(Request{Retry{5}}));
    post.files.die_at_call(call);
    (void)post.hint_and_step();
    post.files.die_at_call(0);

    post.start();

    CHECK(!post.asked.empty());
    CHECK(post.files.exists(join_path(kFolder, "1-1.answer")));
    CHECK_FALSE(post.files.exists(join_path(kFolder, "1-1.taken")));
    CHECK_FALSE(post.files.exists(join_path(kFolder, "1-1.request")));
  }
}

TEST_CASE("what is no request is set aside and answered, and the others are carried out") {
  Post post;
  post.put("1-1.request", "{");
  post.put("1-2.request", std::string(std::size_t{1} << 20U, ' '));
  (void)post.files.symbolic_link("/etc/passwd", join_path(kFolder, "1-3.request"));
  post.files.put_directory(join_path(kFolder, "1-4.request"));
  post.put("\x1b]0;x.request", encode(Request{Retry{5}}));
  post.put("1-5.request", encode(Request{Retry{7}}));

  CHECK(post.hint_and_step() == 1);

  CHECK(post.asked == std::vector<std::int64_t>{7});
  for (const char* const stem : {"1-1", "1-2", "1-3", "1-4"}) {
    INFO(stem);
    CHECK(post.files.info(join_path(kFolder, std::string(stem) + ".rejected")).has_value());
    const auto answer = decode_answer(
        post.files.content(join_path(kFolder, std::string(stem) + ".answer")).value());
    CHECK(answer.value().outcome == Outcome::kFailed);
  }
  for (const std::string& name : post.tree()) CHECK_FALSE(name.ends_with(".request"));
  CHECK(post.hint_and_step() == 0);
}

TEST_CASE(
    "a flood of requests is taken some at a time, and what is set aside stays within a limit") {
  Post post;
  for (int i = 0; i < 100; ++i) post.put("1-" + std::to_string(i) + ".request", "nonsense");

  (void)post.hint_and_step();
  CHECK(post.inbox->until_due() == milliseconds(0));
  int turns = 1;
  for (; post.inbox->until_due() == milliseconds(0) && turns < 20; ++turns) (void)post.step();

  CHECK(turns >= 4);
  (void)post.hint_and_step();
  std::size_t rejected = 0;
  for (const std::string& name : post.tree()) rejected += name.ends_with(".rejected") ? 1U : 0U;
  CHECK(rejected == 20);
}

TEST_CASE("answers that nobody fetched go after some minutes") {
  Post post;
  post.put("1-1.request", encode(Request{Retry{5}}));
  (void)post.hint_and_step();
  CHECK(post.tree() == std::vector<std::string>{"1-1.answer"});

  post.clock.advance(std::chrono::minutes(11));
  (void)post.step();

  CHECK(post.tree().empty());
}

TEST_CASE("without the folder the command says that nobody takes requests") {
  Post post;
  (void)post.files.remove_directory(kFolder);

  const auto answer = post.ask(5, [] {});

  REQUIRE_FALSE(answer.has_value());
  CHECK(answer.error().message.find("takes no requests") != std::string::npos);
}
