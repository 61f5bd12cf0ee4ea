#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "evaluator/tasks/data_set.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::tasks;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Disk {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
};

}  // namespace

TEST_CASE("blank lines are no documents and a last line needs no newline") {
  Disk disk;
  disk.files.put_file("/a.jsonl", "{\"x\": 1}\n\n  \r\n{\"x\": 2}");

  const auto data = open_json_lines(disk.files, {"/a.jsonl"});

  REQUIRE(data.has_value());
  CHECK((*data)->size() == 2);
  CHECK((*data)->row(1).value()["x"] == 2);
  CHECK_FALSE((*data)->row(2).has_value());
  CHECK_FALSE((*data)->row(-1).has_value());
}

TEST_CASE("several files are one sequence of documents") {
  Disk disk;
  disk.files.put_file("/a.jsonl", "{\"x\": 1}\n");
  disk.files.put_file("/b.jsonl", "{\"x\": 2, \"y\": []}\n");

  const auto data = open_json_lines(disk.files, {"/a.jsonl", "/b.jsonl"});

  REQUIRE(data.has_value());
  CHECK((*data)->row(1).value()["x"] == 2);
  CHECK((*data)->columns().size() == 2);
}

TEST_CASE("a picture is read beside the data file or out of a data URL") {
  Disk disk;
  disk.files.put_file("/d/p/a.png", "bytes");
  disk.files.put_file("/d/a.jsonl",
                      "{\"i\": [\"p/a.png\", \"data:image/png;base64,aGVsbG8=\"], \"n\": null}\n");

  const auto data = open_json_lines(disk.files, {"/d/a.jsonl"});

  REQUIRE(data.has_value());
  CHECK((*data)->images(0, "i").value() == std::vector<std::string>{"bytes", "hello"});
  CHECK((*data)->images(0, "n").value().empty());
  CHECK((*data)->images(0, "absent").value().empty());
}

TEST_CASE("a picture that is not there names the line and the file") {
  Disk disk;
  disk.files.put_file("/d/a.jsonl", "{\"i\": \"no.png\"}\n");

  const auto data = open_json_lines(disk.files, {"/d/a.jsonl"});

  REQUIRE(data.has_value());
  const auto images = (*data)->images(0, "i");
  REQUIRE_FALSE(images.has_value());
  CHECK_THAT(images.error().message,
             ContainsSubstring("/d/a.jsonl:1") && ContainsSubstring("no.png"));
}

TEST_CASE("other content is another fingerprint") {
  Disk disk;
  disk.files.put_file("/a.jsonl", "{\"x\": 1}\n");
  const std::string before = open_json_lines(disk.files, {"/a.jsonl"}).value()->fingerprint();
  disk.files.put_file("/a.jsonl", "{\"x\": 2}\n");

  CHECK(open_json_lines(disk.files, {"/a.jsonl"}).value()->fingerprint() != before);
}

TEST_CASE("Parquet that is not Parquet is corrupt and no crash") {
  Disk disk;
  for (const char* content :
       {"", "PAR1", "PAR1PAR1", "PAR1xxxx\xff\xff\xff\x7fPAR1", "not parquet at all"}) {
    disk.files.put_file("/a.parquet", content);
    const auto data = open_parquet(disk.files, {"/a.parquet"});
    REQUIRE_FALSE(data.has_value());
    CHECK_THAT(data.error().message, ContainsSubstring("/a.parquet"));
  }
}
