#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

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
