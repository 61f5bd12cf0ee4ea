#include "agent/webhook/courier.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "agent/webhook/signature.h"
#include "tests/unit/webhook/fake_poster.h"

using namespace evalcar;
using namespace evalcar::webhook;
using test::comes_true;

namespace {

struct Route {
  test::Receiver receiver;
  std::unique_ptr<Courier> courier;
  explicit Route(const std::string& secret = "") {
    CourierOptions options;
    options.url = "http://127.0.0.1/";
    options.secret = secret;
    options.version = "1.2";
    options.first_pause = std::chrono::milliseconds(1);
    options.longest_pause = std::chrono::milliseconds(4);
    courier = std::make_unique<Courier>(options, std::make_unique<test::FakePoster>(receiver));
  }
  std::string header(std::size_t post, const std::string& name) {
    return receiver.book.with([&](test::Receiver::Book& book) {
      for (const auto& [key, value] : book.headers.at(post)) {
        if (key == name) return value;
      }
      return std::string();
    });
  }
};

}  // namespace

TEST_CASE("results are posted in their order, named and signed") {
  Route route("key");
  REQUIRE(route.courier->take({1, "run-1", "{\"seq\":1}"}));
  REQUIRE(route.courier->take({2, "run-1", "{\"seq\":2}"}));
  REQUIRE(comes_true([&] { return route.courier->done() == 2; }));
  CHECK(route.receiver.book.with([](auto& book) { return book.bodies; }) ==
        std::vector<std::string>{"{\"seq\":1}", "{\"seq\":2}"});
  CHECK(route.header(0, "X-Evalcar-Delivery") == "run-1/1");
  CHECK(route.header(1, "Idempotency-Key") == "\"run-1/2\"");
  CHECK(route.header(1, "X-Evalcar-Signature-256") ==
        "sha256=" + hmac_sha256_hex("key", "{\"seq\":2}"));
  CHECK(route.header(0, "Content-Type") == "application/json");
  CHECK(route.courier->idle());
  CHECK(route.courier->trouble().empty());
}

TEST_CASE("without a secret nothing is signed") {
  Route route;
  REQUIRE(route.courier->take({1, "run-1", "{}"}));
  REQUIRE(comes_true([&] { return route.courier->done() == 1; }));
  CHECK(route.header(0, "X-Evalcar-Signature-256").empty());
}

TEST_CASE("a folder's name cannot add fields to a post, nor a receiver's answer lines to the log") {
  Route route;
  REQUIRE(route.courier->take({1, "out\r\nX-Forged: \"1%", "{}"}));
  REQUIRE(comes_true([&] { return route.courier->done() == 1; }));
  CHECK(route.header(0, "X-Evalcar-Delivery") == "out%0D%0AX-Forged:%20%221%25/1");

  for (int i = 0; i < 10000; ++i) {
    route.receiver.answer(Answer{.status = 302, .location = "http://x/\nforged\x1b[2J"});
  }
  REQUIRE(route.courier->take({2, "r", "{}"}));
  REQUIRE(comes_true([&] { return route.courier->failures() > 0; }));
  CHECK(route.courier->trouble().find_first_of("\n\x1b") == std::string::npos);
}

TEST_CASE("what is not taken is posted again, and the next one waits for it") {
  Route route;
  for (int i = 0; i < 3; ++i) {
    route.receiver.answer(make_error(ErrorCode::kUnavailable, "connection refused"));
  }
  route.receiver.answer(Answer{.status = 503});
  route.receiver.answer(Answer{.status = 404});
  REQUIRE(route.courier->take({1, "r", "one"}));
  REQUIRE(route.courier->take({2, "r", "two"}));
  REQUIRE(comes_true([&] { return route.courier->done() == 2; }));
  CHECK(route.receiver.book.with([](auto& book) { return book.bodies; }) ==
        std::vector<std::string>{"one", "one", "one", "one", "one", "one", "two"});
}

TEST_CASE("a redirect is not taken for a delivery, and is told") {
  Route route;
  for (int i = 0; i < 10000; ++i) {
    route.receiver.answer(Answer{.status = 302, .location = "http://elsewhere/"});
  }
  REQUIRE(route.courier->take({1, "r", "one"}));
  REQUIRE(comes_true([&] { return route.courier->failures() > 0; }));
  CHECK(route.courier->trouble().find("302 and points to http://elsewhere/") != std::string::npos);
  CHECK_FALSE(route.courier->done().has_value());
}

TEST_CASE("a body that is called wrong again and again is given up, aloud, and the next one goes") {
  Route route;
  for (int i = 0; i < 3; ++i) route.receiver.answer(Answer{.status = 422});
  REQUIRE(route.courier->take({1, "r", "one"}));
  REQUIRE(comes_true([&] { return route.courier->done() == 1; }));
  CHECK(route.courier->trouble().find("given up") != std::string::npos);
  CHECK(route.receiver.count() == 3);
  REQUIRE(route.courier->take({2, "r", "two"}));
  REQUIRE(comes_true([&] { return route.courier->done() == 2; }));
}

TEST_CASE("it holds only so many, and ends while its receiver hangs") {
  Route route;
  route.receiver.hangs = true;
  for (std::size_t i = 0; i < Courier::kMostParcels; ++i) {
    REQUIRE(route.courier->take({static_cast<std::int64_t>(i), "r", "x"}));
  }
  CHECK_FALSE(route.courier->take({99, "r", "x"}));
  CHECK_FALSE(route.courier->idle());
  route.courier.reset();
  CHECK(route.receiver.count() == 0);
}
