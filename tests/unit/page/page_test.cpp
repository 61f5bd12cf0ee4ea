#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/page/page_data.h"
#include "agent/page/page_file.h"
#include "tests/unit/state/scenario.h"

using namespace evalcar;
using nlohmann::json;
using test::must;

// RFC 4648, section 10.
TEST_CASE("base64 pads to whole groups") {
  CHECK(page::base64("").empty());
  CHECK(page::base64("f") == "Zg==");
  CHECK(page::base64("fo") == "Zm8=");
  CHECK(page::base64("foo") == "Zm9v");
  CHECK(page::base64("foobar") == "Zm9vYmFy");
  CHECK(page::base64("\xff\xfe\xfd") == "//79");
}

TEST_CASE("the page's data hold the run's numbers and its evaluations") {
  test::Scenario s;
  s.bring(s.plan(100).id, state::EvaluationState::kScored, "w", 0.75);
  must(s.store->transition(s.plan(200).id, state::EvaluationState::kLost, "gone"));
  const json data =
      json::parse(must(page::page_data(s.store->read(), s.clock, s.run.name, std::nullopt, false)));
  CHECK(data["run"] == "run-01234567-1");
  CHECK(data["live"] == false);
  CHECK(data["status"]["evaluations"].size() == 2);
  REQUIRE(data["metrics"].size() == 1);
  CHECK(data["metrics"][0]["step"] == 100);
  CHECK(data["metrics"][0]["value"] == 0.75);
  CHECK(data["metrics"][0]["stderr"] == 0.25);
  const auto none = page::page_data(s.store->read(), s.clock, "other", std::nullopt, false);
  CHECK(none.error().code == ErrorCode::kNotFound);
}

TEST_CASE("the page's data mark numbers of other settings, also when only those have changed") {
  test::Scenario s;
  s.bring(s.plan(100).id, state::EvaluationState::kScored, "w", 0.75);
  s.configure();
  page::LiveDocument document(s.run.name);
  const auto reader = must(state::Reader::open(s.db()));
  const auto ask = [&] {
    return json::parse(must(document.text(reader, s.clock, std::nullopt, {})));
  };
  const json before = ask();
  CHECK_FALSE(before["metrics"][0].contains("configured"));

  s.configure(4);
  const json after = ask();

  CHECK(after["version"] != before["version"]);
  CHECK(after["metrics"][0]["configured"] == false);
}

TEST_CASE("nothing in the data can end its element, and all parts are in the page once") {
  const std::string page = page::page_file(R"({"x":"</script><script>alert(1)</script><!--"})");
  CHECK(page.find("<script>alert") == std::string::npos);
  CHECK(page.find(R"({"x":"\u003c/script>\u003cscript>alert(1))") != std::string::npos);
  CHECK(page.find("<!--head-->") == std::string::npos);
  CHECK(page.find("<!--scripts-->") == std::string::npos);
  CHECK(page.find("sourceMappingURL") == std::string::npos);
  for (const char* part :
       {"Content-Security-Policy", "default-src 'none'", "Permission is hereby granted",
        "EventSource", "prefers-color-scheme: dark"}) {
    INFO(part);
    CHECK(page.find(part) != std::string::npos);
  }
}

TEST_CASE(
    "a page that is served holds no data, may ask its server alone, and be framed by nobody") {
  const page::LivePage& live = page::live_page();
  CHECK(live.html.find("id=\"page-data\"") == std::string::npos);
  for (const char* part : {"default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"}) {
    INFO(part);
    CHECK(live.policy.find(part) != std::string::npos);
  }
  CHECK(live.policy.find("unsafe") == std::string::npos);
  CHECK(live.html.find("connect-src 'self'") != std::string::npos);
  CHECK(page::page_file("{}").find("connect-src") == std::string::npos);
}

TEST_CASE("the version of a live page's data changes exactly with its numbers") {
  test::Scenario s;
  s.bring(s.plan(100).id, state::EvaluationState::kScored, "w", 0.75);
  page::LiveDocument document(s.run.name);
  const auto reader = must(state::Reader::open(s.db()));  // as a page's: not the store's own
  const auto ask = [&](bool with_metrics) {
    return json::parse(
        must(document.text(reader, s.clock, std::nullopt, {{s.run.name}, with_metrics})));
  };
  const json whole = ask(true);
  CHECK(whole["live"] == true);
  CHECK(whole["runs"] == json::array({s.run.name}));
  CHECK(whole["metrics"].size() == 1);
  s.clock.advance(std::chrono::seconds{30});
  s.plan(200);
  const json news = ask(false);
  CHECK_FALSE(news.contains("metrics"));
  CHECK(news["status"]["evaluations"].size() == 2);
  CHECK(news["version"] == whole["version"]);
  CHECK(document.readings() == 1);  // what is new of others costs no look at all the numbers

  s.bring(s.plan(200).id, state::EvaluationState::kScored, "v", 0.5);

  CHECK(ask(false)["version"] != whole["version"]);
  CHECK(ask(true)["metrics"].size() == 2);
  CHECK(document.readings() == 2);
  const json again = ask(true);
  const json fresh =
      json::parse(must(page::page_data(s.store->read(), s.clock, s.run.name, std::nullopt, true)));
  CHECK(again["metrics"] == fresh["metrics"]);
}

TEST_CASE("who has the numbers of an earlier version is told those that changed since, or all") {
  test::Scenario s;
  s.bring(s.plan(100).id, state::EvaluationState::kScored, "w", 0.75);
  page::LiveDocument document(s.run.name);
  const auto reader = must(state::Reader::open(s.db()));
  const auto since = [&](const std::string& version) {
    return json::parse(
        must(document.text(reader, s.clock, std::nullopt, {{s.run.name}, true, version})));
  };
  const std::string first = since("")["version"];
  s.bring(s.plan(200).id, state::EvaluationState::kScored, "v", 0.5);
  const json news = since(first);
  CHECK(news["since"] == first);
  REQUIRE(news["metrics"].size() == 1);
  CHECK(news["metrics"][0]["step"] == 200);
  const std::string second = news["version"];
  CHECK(second != first);
  CHECK(since(second)["metrics"].empty());

  for (const std::string& strange :
       std::vector<std::string>{"", "5", "x-1", second + "0", first + "x"}) {
    INFO(strange);
    const json whole = since(strange);
    CHECK_FALSE(whole.contains("since"));
    CHECK(whole["metrics"].size() == 2);
  }

  // The same step with other content: its number is another one.
  const auto again = must(s.store->observe_checkpoint(s.run.id, test::Scenario::seen(100, "g", 7)));
  s.bring(s.plan_for(again.checkpoint.id).id, state::EvaluationState::kScored, "x", 0.25);
  const json changed = since(second);
  REQUIRE(changed["metrics"].size() == 1);
  CHECK(changed["metrics"][0]["value"] == 0.25);
  CHECK(since(first)["metrics"].size() == 2);
}

TEST_CASE("where a number is gone, who has it gets all of them") {
  test::Scenario s;
  s.bring(s.plan(100).id, state::EvaluationState::kScored, "w", 0.75);
  const auto row = s.plan(200);
  s.bring(row.id, state::EvaluationState::kScored, "v", 0.5);
  const auto reader = must(state::Reader::open(s.db()));
  page::LiveNumbers numbers;
  must(numbers.read(reader, s.clock, s.run.name));
  const std::string before = numbers.version();
  bool only_news = false;
  CHECK(json::parse(numbers.text(before, only_news)).empty());
  CHECK(only_news);

  // Weights of another save under the same step, not measured yet: the old number is no longer it.
  const auto again = must(s.store->observe_checkpoint(s.run.id, test::Scenario::seen(200, "g", 9)));
  s.bring(s.plan_for(again.checkpoint.id).id, state::EvaluationState::kLeased);
  must(numbers.read(reader, s.clock, s.run.name));
  const auto now = json::parse(numbers.text(before, only_news));
  INFO(now.dump());
  CHECK(only_news == (now.size() != 1));
}

TEST_CASE("where the same step is measured anew, a live page has the new number in its place") {
  test::Scenario s;
  s.bring(s.plan(100).id, state::EvaluationState::kScored, "w", 0.75);
  page::LiveDocument document(s.run.name);
  const auto reader = must(state::Reader::open(s.db()));
  const auto value = [&] {
    const auto text = must(document.text(reader, s.clock, std::nullopt, {{s.run.name}, true}));
    const json metrics = json::parse(text)["metrics"];
    REQUIRE(metrics.size() == 1);
    return metrics[0]["value"].get<double>();
  };
  CHECK(value() == 0.75);

  const auto again = must(s.store->observe_checkpoint(s.run.id, test::Scenario::seen(100, "g", 7)));
  s.bring(s.plan_for(again.checkpoint.id).id, state::EvaluationState::kScored, "x", 0.25);

  CHECK(value() == 0.25);
}
