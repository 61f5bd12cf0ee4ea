#include "agent/log/event.h"

#include <spdlog/spdlog.h>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/support/heard.h"

using namespace evalcar;
using evalcar::test::Heard;
using log::Event;

TEST_CASE("an event is its name and its fields in the order in which they were added") {
  Event event("evaluated");
  event.with("run", "out-1a2b").with("step", std::int64_t{500}).with("seconds", 131.2);

  CHECK(event.fields() == "event=evaluated run=out-1a2b step=500 seconds=131.200");
}

TEST_CASE("a value that would break a line of fields is quoted and escaped") {
  const auto shown = [](std::string_view value) {
    return Event("e").with("v", value).fields().substr(std::string("event=e v=").size());
  };

  CHECK(shown("checkpoint-500") == "checkpoint-500");
  CHECK(shown("") == R"("")");
  CHECK(shown("a b") == R"("a b")");
  CHECK(shown("a=b") == R"("a=b")");
  CHECK(shown(R"(say "no")") == R"("say \"no\"")");
  CHECK(shown(R"(C:\x)") == R"("C:\\x")");
  CHECK(shown("two\nlines") == R"("two\\nlines")");
  CHECK(shown("\x1b[2J") == R"("\\x1b[2J")");
}

TEST_CASE("no value can look like the begin of the fields") {
  const Event event = Event("failed").with("run", "x  event=published step=1   y");

  CHECK(event.fields().find("  ") == std::string::npos);
}

TEST_CASE("what others wrote into the lines of an event does not look like fields") {
  const Heard heard;

  log::error("failed:   event=published\n  event=lost", Event("failed"));

  CHECK(heard.text() == "error failed: event=published  event=failed\n event=lost\n");
}

TEST_CASE("the fields stand behind the sentence, of several lines behind the first one") {
  const Heard heard;

  log::info("checkpoint-5 regular: scored", Event("evaluated"));
  log::warn("odd", Event("odd"));
  log::error("failed:\n  line 2", Event("failed").with("step", std::int64_t{5}));

  CHECK(heard.text() ==
        "info checkpoint-5 regular: scored  event=evaluated\n"
        "warning odd  event=odd\n"
        "error failed:  event=failed step=5\n  line 2\n");
}
