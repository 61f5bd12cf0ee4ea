#include "store/checkpoint/json_scan.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar;
using namespace evalcar::checkpoint;

namespace {

/// Notes the byte of everything that it is told.
class Places final : public JsonVisitor {
 public:
  std::string scalar(const JsonPath&, const JsonScalar&) override { return note('v'); }
  std::string open(const JsonPath&, bool) override { return note('o'); }
  std::string close(const JsonPath&) override { return note('c'); }

  std::vector<std::pair<char, std::size_t>> places;

 private:
  std::string note(char what) {
    places.emplace_back(what, offset);
    return {};
  }
};

}  // namespace

TEST_CASE("a visitor is told where each value begins, and where it is closed") {
  Places visitor;
  //                        0         1         2         3
  //                        0123456789012345678901234567890123456
  const std::string text = R"({ "a" : 12,"b":[-1 ,"x",[]], "c":true})";

  REQUIRE(scan_json(text, "t", 8, visitor).has_value());

  CHECK(visitor.places == std::vector<std::pair<char, std::size_t>>{{'o', 0},
                                                                    {'v', 8},
                                                                    {'o', 15},
                                                                    {'v', 16},
                                                                    {'v', 20},
                                                                    {'o', 24},
                                                                    {'c', 25},
                                                                    {'c', 26},
                                                                    {'v', 33},
                                                                    {'c', 37}});
}

TEST_CASE("what is wrong in a text is told with its byte in the file") {
  struct Bad {
    std::string text;
    std::size_t byte;
  };
  for (const Bad& bad :
       {Bad{R"({"a":1,"a":2})", 7}, Bad{R"({"a":1} x)", 8}, Bad{R"({"a")", 4}, Bad{"", 0},
        Bad{R"({"a":[[[1]]]})", 7}, Bad{"\xef\xbb\xbf{}", 0}, Bad{R"({"a":nul})", 8}}) {
    CAPTURE(bad.text);
    for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{1000}}) {
      Places visitor;
      const Status scanned = scan_json(bad.text, "t", 3, visitor, begin);
      REQUIRE_FALSE(scanned.has_value());
      CAPTURE(scanned.error().message);
      CHECK(scanned.error().message.ends_with("at byte " + std::to_string(begin + bad.byte)));
    }
  }
}
