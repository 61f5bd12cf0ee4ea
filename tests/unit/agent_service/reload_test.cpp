#include "agent/service/reload.h"

#include <catch2/catch_test_macros.hpp>

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
