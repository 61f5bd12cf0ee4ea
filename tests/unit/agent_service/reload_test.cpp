#include "agent/service/reload.h"

#include <catch2/catch_test_macros.hpp>

#include "store/base/file_system.h"

using namespace evalcar;
using namespace evalcar::agent_service;

namespace {

config::Settings settings() {
  config::Settings made;
  made.watch.output_dir = {"/data/a", "/data/b"};
  made.store.path = "/var/lib/evalcar/a.db";
  made.evaluate.tasks = {"docvqa_val"};
  return made;
}

}  // namespace

TEST_CASE("policy, limits, tasks and places of results are taken up by a reload") {
  config::Settings next = settings();
  next.evaluate.tasks = {"mmmu_val"};
  next.evaluate.policy = config::Policy::kEvery;
  next.evaluate.device = "cuda:1";
  next.limits.attempts = 9;
  next.publish.dir = "/elsewhere";
  next.watch.output_dir = {"/data/b", "/data/a"};  // another order is no change

  CHECK(check_reload(settings(), next).has_value());
}

TEST_CASE("another place to look at is refused by name, with what it is and what it was") {
  config::Settings next = settings();
  next.watch.output_dir = {"/data/a"};

  const Status checked = check_reload(settings(), next);

  REQUIRE_FALSE(checked.has_value());
  CHECK(checked.error().code == ErrorCode::kInvalidArgument);
  CHECK(checked.error().message ==
        "watch.output_dir is /data/a now, but was /data/a, /data/b when the agent started; only a "
        "restart changes it");
}

TEST_CASE("another database is refused by name") {
  config::Settings next = settings();
  next.store.path = "";

  const Status checked = check_reload(settings(), next);

  REQUIRE_FALSE(checked.has_value());
  CHECK(checked.error().message.starts_with("store.path is not set now, but was /var/lib"));
}

TEST_CASE("all that only a restart changes is named at once") {
  config::Settings next = settings();
  next.watch.output_dir = {"/data/c"};
  next.store.path = "/b.db";

  const std::string message = check_reload(settings(), next).error().message;

  CHECK(message.find("watch.output_dir is /data/c now") != std::string::npos);
  CHECK(message.find("store.path is /b.db now") != std::string::npos);
}

TEST_CASE("a reload tells each value that changes, and of addresses that they do") {
  const auto load = [](std::vector<config::Override> overrides) {
    auto config = config::load(RealFileSystem(), "", overrides);
    REQUIRE(config.has_value());
    return std::move(config).value();
  };
  const config::Config now = load({{"limits.attempts", "7", "--set"}, {"evaluate.limit", "5", ""}});
  config::Config next =
      load({{"limits.attempts", "7", "evalcar.toml:3"}, {"evaluate.policy", "every", ""}});
  for (config::Entry& entry : next.entries) {
    if (entry.key->name == "publish.webhook_url") entry.literal = "\"https://h/?token=s3cret\"";
  }

  CHECK(changes_of(now, now).empty());
  CHECK(changes_of(now, next) ==
        std::vector<std::string>{"evaluate.limit: 5 -> \"all\"",
                                 "evaluate.policy: \"newest-first\" -> \"every\"",
                                 "publish.webhook_url"});
}
