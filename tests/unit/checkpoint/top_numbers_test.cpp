#include "store/checkpoint/top_numbers.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/state/scenario.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using evalcar::test::must;

namespace {

constexpr std::uint64_t kLimit = std::uint64_t{64} << 20U;

struct Read {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};

  Result<TopNumbers> operator()(const std::string& text, std::uint64_t limit = kLimit) {
    files.put_file("/f.json", text);
    files.reset_calls();
    return top_level_numbers(files, "/f.json", {"a", "b"}, limit);
  }
  Error error(const std::string& text, std::uint64_t limit = kLimit) {
    const auto read = (*this)(text, limit);
    REQUIRE_FALSE(read.has_value());
    return read.error();
  }
};

/// More than the pieces in which a file is read: entries of about a hundred bytes.
std::string long_log(std::size_t bytes) {
  std::string log = R"({"log": [)";
  while (log.size() < bytes) {
    log += R"({"a": 7, "loss": NaN, "norm": -Infinity, "text": "NaN \" [ Infinity {"}, )";
  }
  return log + "{}]";
}

}  // namespace

TEST_CASE("numbers at the top are found before and behind a long log, and none within it") {
  Read read;

  const auto numbers = must(read(long_log(3'500'000) + R"(, "a": 1.5, "b": -3, "c": 4})"));

  CHECK(numbers == TopNumbers{{"a", 1.5}, {"b", -3}});
  CHECK(read.files.count("read_at") == 4);
  CHECK(must(read(R"({"b": null, "a": 3, "c": {"b": 2}})")) == TopNumbers{{"a", 3}});
}

TEST_CASE("Python's words for what is no number are read wherever a piece of the file ends") {
  Read read;
  constexpr std::size_t kPiece = std::size_t{1} << 20U;
  for (std::size_t before = kPiece - 30; before < kPiece + 4; ++before) {
    const std::string blanks(before, ' ');
    CHECK(must(read(blanks + R"({"x": NaN, "a": 5, "y": -Infinity})")).at("a") == 5);
    CHECK(must(read(blanks + R"({"x": "\\\"", "b": 6})")).at("b") == 6);
  }
}

TEST_CASE("a text that was cut at any byte may still grow, and is not taken for damaged") {
  Read read;
  const std::string whole = R"({"a": 1, "log": [{"x": NaN}, "}\"]"], "b": 2} )";
  for (std::size_t size = 0; size + 2 < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(read.error(whole.substr(0, size)).code == ErrorCode::kUnavailable);
  }
  CHECK(read.error(std::string("{\"a\": 1, \0\0\0", 12)).code == ErrorCode::kUnavailable);
}

TEST_CASE(
    "what is wrong in a file is told with its byte, and no more of it is kept than is asked") {
  Read read;
  const auto message = [&](const std::string& text) {
    const Error error = read.error(text);
    CHECK(error.code == ErrorCode::kCorruption);
    return error.message;
  };
  CHECK(message(R"({"a":1,"a":2})").find("appears twice") != std::string::npos);
  CHECK(message(R"({"a":1} x)").find("not valid JSON") != std::string::npos);
  CHECK(message("[1]").find("expected an object") != std::string::npos);
  CHECK(message("1").find("expected an object") != std::string::npos);
  CHECK(message("\xef\xbb\xbf{}").ends_with("a byte order mark before the JSON text, at byte 0"));
  CHECK(message(std::string("{}\0", 3)).ends_with("a NUL in the JSON text, at byte 2"));
  CHECK(message("{\"a\": " + std::string(300, '[') + std::string(300, ']') + "}")
            .find("nested deeper than 256") != std::string::npos);
  CHECK(message("{\"x\": \"" + std::string(20U << 20U, 'x') + "\"}")
            .find("a string of more than 16 MiB") != std::string::npos);
  CHECK(read.error(R"({"a": 1})", 7).message == "/f.json: 8 bytes, expected at most 7");
}

TEST_CASE("whole numbers are steps, and what has a fraction or a sign is none") {
  const TopNumbers numbers{{"a", 5}, {"b", 0.5}, {"c", -1}, {"d", 1e300}};
  CHECK(whole_number(numbers, "a") == 5);
  for (const char* key : {"b", "c", "d", "e"}) CHECK_FALSE(whole_number(numbers, key).has_value());
}
