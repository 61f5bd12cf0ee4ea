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

TEST_CASE("what is to be pruned comes back as it was asked, and so does that there is more") {
  const auto both = decode_request(encode(Request{Prune{3, std::chrono::hours(24), true}}));
  REQUIRE(both.has_value());
  const Prune& prune = std::get<Prune>(*both);
  CHECK(prune.keep == 3);
  CHECK(prune.older_than == std::chrono::seconds(86'400));
  CHECK(prune.dry_run);
  const auto one = decode_request(encode(Request{Prune{std::nullopt, std::chrono::seconds(0)}}));
  REQUIRE(one.has_value());
  CHECK_FALSE(std::get<Prune>(*one).keep.has_value());
  CHECK_FALSE(std::get<Prune>(*one).dry_run);

  CHECK(decode_answer(encode(Answer{Outcome::kDone, "", true}))->more);
  CHECK_FALSE(decode_answer(R"({"version":1,"outcome":"done","text":""})")->more);
}

TEST_CASE("what is to be measured after all, cancelled or pinned comes back as it was asked") {
  const auto backfill = decode_request(encode(Request{Backfill{}}));
  const auto cancel = decode_request(encode(Request{Cancel{7}}));
  const auto pin = decode_request(encode(Request{Pin{500, false}}));
  const auto unpin = decode_request(encode(Request{Pin{500, true}}));

  REQUIRE(backfill.has_value());
  CHECK(std::holds_alternative<Backfill>(*backfill));
  REQUIRE(cancel.has_value());
  CHECK(std::get<Cancel>(*cancel).evaluation == 7);
  REQUIRE(pin.has_value());
  CHECK(std::get<Pin>(*pin).step == 500);
  CHECK_FALSE(std::get<Pin>(*pin).off);
  REQUIRE(unpin.has_value());
  CHECK(std::get<Pin>(*unpin).off);
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
           {R"({"version":1,"request":"cancel"})", "evaluation"},
           {R"({"version":1,"request":"pin","step":5})", "off"},
           {R"({"version":1,"request":"pin","off":false})", "step"},
           {R"({"version":1,"request":"prune","dry_run":false})", "neither"},
           {R"({"version":1,"request":"prune","keep":2})", "dry_run"},
           {R"({"version":1,"request":"prune","keep":-2,"dry_run":false})", "keep"},
           {R"({"version":1,"request":"prune","older_than_s":9e9,"dry_run":false})",
            "older_than_s"},
           {R"({"version":1,"request":"prune","older_than_s":9000000000000,"dry_run":false})",
            "ten thousand years"},
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
