#include "agent/request/request.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar;
using namespace evalcar::request;

TEST_CASE("a request and an answer come back as they were written") {
  const auto request = decode_request(encode(Request{Retry{500}}));
  const auto answer = decode_answer(encode(Answer{Outcome::kNothing, "step 500: \"ema\" läuft"}));

  REQUIRE(request.has_value());
  CHECK(std::get<Retry>(*request).step == 500);
  REQUIRE(answer.has_value());
  CHECK(answer->outcome == Outcome::kNothing);
  CHECK(answer->text == "step 500: \"ema\" läuft");
}

TEST_CASE("no cut of a request is taken for a request") {
  const std::string text = encode(Request{Retry{500}});

  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    INFO(text.substr(0, length));
    CHECK_FALSE(decode_request(text.substr(0, length)).has_value());
  }
}

TEST_CASE("what is no request is refused with the reason") {
  for (const auto& [text, reason] : {
           std::pair{"[]", "not a JSON object"},
           {"{}", "version"},
           {R"({"version":2,"request":"retry","step":5})", "different builds"},
           {R"({"version":1,"request":"reboot"})", "none that this version knows"},
           {R"({"version":1,"request":["retry"],"step":5})", "none that this version knows"},
           {R"({"version":1,"request":"retry"})", "step"},
           {R"({"version":1,"request":"retry","step":-5})", "step"},
           {R"({"version":1,"request":"retry","step":1e3})", "step"},
           {R"({"version":1,"request":"retry","step":18446744073709551615})", "step"},
       }) {
    INFO(text);
    const auto decoded = decode_request(text);
    REQUIRE_FALSE(decoded.has_value());
    CHECK(decoded.error().message.find(reason) != std::string::npos);
  }
}

TEST_CASE("an answer without a known outcome is refused") {
  CHECK_FALSE(decode_answer(R"({"version":1,"outcome":"maybe"})").has_value());
  CHECK_FALSE(decode_answer(R"({"version":1,"outcome":3})").has_value());
}
