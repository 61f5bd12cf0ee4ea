#include "store/base/line_reader.h"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using Found = LineReader::Found;

namespace {

struct Folder {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};

  LineReader open(std::string_view content, std::size_t line_bytes = 100) {
    files.put_file("/log", content);
    auto reader =
        LineReader::open(files, "/log", {.file_bytes = 10U << 20U, .line_bytes = line_bytes});
    REQUIRE(reader.has_value());
    return std::move(*reader);
  }
};

std::vector<std::string> all(LineReader& reader) {
  std::vector<std::string> lines;
  while (true) {
    const auto found = reader.next();
    REQUIRE(found.has_value());
    if (*found == Found::kEnd) return lines;
    if (*found == Found::kLine) lines.push_back(reader.take_line());
    if (*found == Found::kTooLong) lines.emplace_back("(too long)");
  }
}

}  // namespace

TEST_CASE("the whole lines of a file come one by one, without a torn tail") {
  Folder d;
  LineReader reader = d.open("one\n\nthree\nto");
  CHECK(all(reader) == std::vector<std::string>{"one", "", "three"});
  LineReader empty = d.open("");
  CHECK(all(empty).empty());
}

TEST_CASE("lines that lie across pieces are whole, wherever the cut falls") {
  Folder d;
  for (const std::size_t before : {LineReader::kPieceBytes - 3, LineReader::kPieceBytes - 1,
                                   LineReader::kPieceBytes, LineReader::kPieceBytes + 1}) {
    const std::string first(before, 'a');
    LineReader reader = d.open(first + "\nlast\n", before);
    CHECK(all(reader) == std::vector<std::string>{first, "last"});
  }
}

TEST_CASE("one call reads no more than a piece, however long a line is") {
  Folder d;
  LineReader reader = d.open(std::string(3 * LineReader::kPieceBytes, 'a') + "\n", 4U << 20U);
  for (int i = 0; i < 4; ++i) CHECK(reader.next().value() == Found::kPiece);
  CHECK(reader.next().value() == Found::kLine);
  CHECK(reader.take_line().size() == 3 * LineReader::kPieceBytes);
}

TEST_CASE("lines above the limit are passed over, across pieces and within one") {
  Folder d;
  LineReader reader = d.open("one\n" + std::string(101, 'a') + "\ntwo\n" +
                             std::string(3 * LineReader::kPieceBytes, 'b') + "\nthree\n");
  CHECK(all(reader) == std::vector<std::string>{"one", "(too long)", "two", "(too long)", "three"});
}

TEST_CASE("a file above the limit, cut or replaced while it is read is refused") {
  Folder d;
  d.files.put_file("/log", "0123456789");
  CHECK(LineReader::open(d.files, "/log", {.file_bytes = 9, .line_bytes = 9}).error().code ==
        ErrorCode::kCorruption);
  CHECK(LineReader::open(d.files, "/no", {.file_bytes = 9, .line_bytes = 9}).error().code ==
        ErrorCode::kNotFound);

  const std::string content = std::string(LineReader::kPieceBytes, 'a') + "\nmore\n";
  LineReader reader = d.open(content, 4U << 20U);
  CHECK(reader.next().value() == Found::kPiece);
  SECTION("cut") { REQUIRE(d.files.truncate("/log", 5).has_value()); }
  SECTION("replaced") {
    d.files.put_file("/other", content);
    REQUIRE(d.files.rename("/other", "/log").has_value());
  }
  CHECK(reader.next().error().code == ErrorCode::kUnavailable);
}
