#include "evaluator/tasks/data_identity.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "evaluator/tasks/data_check.h"
#include "evaluator/tasks/file_identity.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::tasks;
using std::chrono::seconds;

namespace {

constexpr std::string_view kTask = R"(task = "own"
[data]
files = ["val.jsonl"]
[columns]
target = "a"
[prompt]
text = "{q}"
[fewshot]
files = ["train.jsonl"]
[scorer]
name = "exact_match"
)";

struct Disk {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  protocol::EvaluationSettings settings{.tasks = {"own"}, .data_dir = "/d", .tasks_dir = "/t"};

  Disk() {
    files.put_file("/t/own.toml", kTask);
    files.put_file("/t/val.jsonl", "{\"q\": \"1\", \"a\": \"x\"}\n");
    files.put_file("/t/train.jsonl",
                   "{\"q\": \"2\", \"a\": \"y\"}\n{\"q\": \"3\", \"a\": \"z\"}\n");
    clock.advance(seconds{10});
  }
  std::optional<Sha256Digest> identity() const {
    return identify_data(files, find_task(files, "/t", "own").value(), settings);
  }
  std::size_t opened(const std::string& path) const {
    const auto calls = files.calls();
    return static_cast<std::size_t>(
        std::ranges::count(calls, test::Call{.operation = "open_readable", .path = path}));
  }
};

}  // namespace

TEST_CASE("data keep their identity while nobody touches them, and no data file is opened for it") {
  Disk disk;
  const auto first = disk.identity();
  disk.clock.advance(seconds{10});

  REQUIRE(first.has_value());
  CHECK(disk.identity() == first);
  CHECK(disk.opened("/t/val.jsonl") == 0);
}

TEST_CASE("a data file that is rewritten in place and given its old date is another one") {
  Disk disk;
  const auto first = disk.identity();
  const std::int64_t date = disk.files.info("/t/val.jsonl")->mtime_ns;
  disk.clock.advance(seconds{10});
  disk.files.put_file("/t/val.jsonl", "{\"q\": \"9\", \"a\": \"x\"}\n");
  REQUIRE(disk.files.set_mtime("/t/val.jsonl", date).has_value());

  CHECK(disk.files.info("/t/val.jsonl")->mtime_ns == date);
  CHECK(disk.identity() != first);
}

TEST_CASE("task file, number of examples and the examples' data belong to the identity") {
  Disk disk;
  std::vector<std::optional<Sha256Digest>> seen = {disk.identity()};
  disk.settings.num_fewshot = 1;
  seen.push_back(disk.identity());
  disk.files.put_file("/t/train.jsonl",
                      "{\"q\": \"2\", \"a\": \"y\"}\n{\"q\": \"3\", \"a\": \"?\"}\n");
  seen.push_back(disk.identity());
  disk.files.put_file("/t/own.toml", std::string(kTask) + "ignore_case = true\n");
  seen.push_back(disk.identity());

  for (std::size_t i = 0; i < seen.size(); ++i) {
    INFO(i);
    CHECK(seen[i].has_value());
    CHECK(std::ranges::count(seen, seen[i]) == 1);
  }
}

TEST_CASE("another file of the split belongs to the identity") {
  Disk disk;
  const auto first = disk.identity();
  std::string two(kTask);
  two.replace(two.find("\"val.jsonl\""), 11, "\"val.jsonl\", \"more.jsonl\"");
  disk.files.put_file("/t/own.toml", two);
  CHECK_FALSE(disk.identity().has_value());  // who opens it says why
  disk.files.put_file("/t/more.jsonl", "{\"q\": \"4\", \"a\": \"x\"}\n");

  CHECK(disk.identity().has_value());
  CHECK(disk.identity() != first);
}

TEST_CASE("an identity tells of changes where the file system keeps a ctime that lies behind") {
  Disk disk;
  const auto telling = [&](const std::string& path) {
    return is_telling(disk.files, path, identity_of(*disk.files.info(path)), disk.clock.wall_now());
  };
  CHECK(telling("/t/val.jsonl"));

  disk.files.put_file("/t/val.jsonl", "{}\n");
  CHECK_FALSE(telling("/t/val.jsonl"));  // it could be written again with the same time
  disk.clock.advance(seconds{1});
  CHECK_FALSE(telling("/t/val.jsonl"));
  disk.clock.advance(seconds{2});
  CHECK(telling("/t/val.jsonl"));

  disk.files.mount("/fuse", 7, 0x65735546);
  disk.files.mount("/nfs", 8, 0x6969);
  disk.files.put_file("/fuse/val.jsonl", "{}\n");
  disk.files.put_file("/nfs/val.jsonl", "{}\n");
  disk.clock.advance(seconds{10});
  CHECK_FALSE(telling("/fuse/val.jsonl"));
  CHECK(telling("/nfs/val.jsonl"));
}

TEST_CASE("data that were whole are not read again to check them, until they change") {
  Disk disk;
  DataCheck check;
  const auto first = check.check(disk.files, disk.settings);
  REQUIRE(first.size() == 1);
  CHECK(first[0].error.empty());
  disk.files.reset_calls();

  const auto again = check.check(disk.files, disk.settings);
  REQUIRE(again.size() == 1);
  CHECK(again[0].error.empty());
  CHECK(again[0].circumstances == first[0].circumstances);
  CHECK(disk.opened("/t/val.jsonl") == 0);

  disk.files.put_file("/t/val.jsonl", "no JSON\n");
  CHECK_FALSE(check.check(disk.files, disk.settings)[0].error.empty());
  CHECK_FALSE(check.check(disk.files, disk.settings)[0].error.empty());
  REQUIRE(disk.files.remove_file("/t/val.jsonl").has_value());
  CHECK(check.check(disk.files, disk.settings)[0].error.find("is not there") != std::string::npos);
}
