#include "agent/publish/metrics_log.h"

#include <catch2/catch_test_macros.hpp>
#include <cerrno>

#include "tests/unit/state/scenario.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::publish;
using test::must;
using test::UnsyncedNames;

namespace {
constexpr const char* kPath = "/out/_evalcar/metrics.jsonl";
const std::string kFirst = R"({"seq":1,"evaluation":"aaaa","metrics":{"eval/t/ä":1}})";
const std::string kSecond = R"({"seq":2,"evaluation":"bbbb","metrics":{"eval/t/m":2}})";
const std::string kThird = R"({"seq":3,"evaluation":"cccc","metrics":{"eval/t/m":3}})";

struct Disk {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  Disk() { files.put_directory("/out/_evalcar"); }
};

/// A file of several mebibytes, a line of ours in each half.
std::string long_log() {
  const std::string filler = std::string(100'000, 'x') + "\n";
  std::string log = kFirst + "\n";
  for (int i = 0; i < 15; ++i) log += filler;
  log += kThird + "\n";
  for (int i = 0; i < 15; ++i) log += filler;
  return log;
}

/// Goes on until it is through; how many slices were cut before.
template <typename Work>
int slices(const Work& work) {
  for (int cut = 0; cut < 100; ++cut) {
    const Status done = work();
    if (done.has_value()) return cut;
    REQUIRE(done.error().code == ErrorCode::kCancelled);
  }
  return 100;
}

/// What a reader that follows the contract sees: text up to the last newline.
std::string whole_lines(const std::optional<std::string>& content) {
  if (!content.has_value()) return "";
  const std::size_t newline = content->rfind('\n');
  return newline == std::string::npos ? "" : content->substr(0, newline + 1);
}
}  // namespace

TEST_CASE("a torn tail is cut at every byte of the last line, and the line can be written again") {
  const std::string before = kFirst + "\n";
  for (std::size_t cut = 0; cut <= kSecond.size(); ++cut) {
    Disk disk;
    disk.files.put_file(kPath, before + kSecond.substr(0, cut));
    MetricsLog log(disk.files, kPath);

    REQUIRE(log.refresh().has_value());

    CHECK(disk.files.content(kPath) == before);
    CHECK(log.last_seq() == 1);
    CHECK_FALSE(must(log.line_of("bbbb")).has_value());
    REQUIRE(log.append(kSecond).has_value());
    CHECK(disk.files.content(kPath) == before + kSecond + "\n");
  }
}

TEST_CASE("a file that is only a torn line becomes empty") {
  Disk disk;
  disk.files.put_file(kPath, kFirst.substr(0, 20));
  MetricsLog log(disk.files, kPath);
  REQUIRE(log.refresh().has_value());
  CHECK(disk.files.content(kPath) == "");
  CHECK(log.last_seq() == 0);
}

TEST_CASE("a line is one write, then fsync, and a new file's name is synced too") {
  Disk disk;
  MetricsLog log(disk.files, kPath);
  REQUIRE(log.append(kFirst).has_value());
  CHECK(disk.files.count("append") == 1);
  disk.files.power_cut();
  CHECK(disk.files.content(kPath) == kFirst + "\n");
  REQUIRE(log.append(kSecond).has_value());
  disk.files.power_cut();
  CHECK(disk.files.content(kPath) == kFirst + "\n" + kSecond + "\n");
}

TEST_CASE("a power cut at any call of an append leaves whole lines and at most the new one") {
  for (const UnsyncedNames names : {UnsyncedNames::kDropped, UnsyncedNames::kKept}) {
    for (std::size_t n = 1; n < 20; ++n) {
      Disk disk;
      disk.files.put_file(kPath, kFirst + "\n");
      MetricsLog log(disk.files, kPath);
      disk.files.die_at_call(n);
      const bool done = log.append(kSecond).has_value();
      disk.files.power_cut(names);

      MetricsLog again(disk.files, kPath);
      REQUIRE(again.refresh().has_value());
      const auto content = disk.files.content(kPath);
      CHECK(whole_lines(content) == content);
      CHECK((content == kFirst + "\n" || content == kFirst + "\n" + kSecond + "\n"));
      if (done) CHECK(must(again.line_of("bbbb")) == kSecond);
    }
  }
}

TEST_CASE("a kill at any call of an append is healed, whatever of it reached the disk") {
  for (std::size_t n = 1; n < 20; ++n) {
    Disk disk;
    disk.files.put_file(kPath, kFirst + "\n");
    {
      MetricsLog log(disk.files, kPath);
      disk.files.die_at_call(n);
      (void)log.append(kSecond);
    }
    disk.files.sync_all();  // the process died, the machine did not
    disk.files.power_cut();

    MetricsLog log(disk.files, kPath);
    REQUIRE(log.refresh().has_value());
    if (!log.holds("bbbb")) REQUIRE(log.append(kSecond).has_value());
    CHECK(disk.files.content(kPath) == kFirst + "\n" + kSecond + "\n");
  }
}

TEST_CASE("after a full disk the half line is cut and the next append gives whole lines") {
  Disk disk;
  disk.files.put_file(kPath, kFirst + "\n");
  MetricsLog log(disk.files, kPath);
  disk.files.fail_operation("append", ENOSPC);
  const Status failed = log.append(kSecond);
  REQUIRE_FALSE(failed.has_value());
  CHECK(failed.error().retryable);
  CHECK(disk.files.content(kPath) == kFirst + "\n");
  REQUIRE(log.append(kSecond).has_value());
  CHECK(disk.files.content(kPath) == kFirst + "\n" + kSecond + "\n");
}

TEST_CASE("after a failed fsync the file is replaced, never synced again as it is") {
  Disk disk;
  disk.files.put_file(kPath, kFirst + "\n");
  const std::uint64_t inode = disk.files.info(kPath)->inode;
  MetricsLog log(disk.files, kPath);
  disk.files.fail_operation("sync", EIO);
  CHECK_FALSE(log.append(kSecond).has_value());

  REQUIRE(log.refresh().has_value());
  CHECK(disk.files.info(kPath)->inode != inode);
  // Readers saw the line, so it is kept, and now it is safe.
  CHECK(must(log.line_of("bbbb")) == kSecond);
  disk.files.power_cut();
  CHECK(disk.files.content(kPath) == kFirst + "\n" + kSecond + "\n");
}

TEST_CASE("lines of others and broken lines stay, and the largest seq counts") {
  Disk disk;
  const std::string content = "not json\n" + kThird + "\n[1]\n" + kFirst + "\n{\"seq\":\"x\"}\n";
  disk.files.put_file(kPath, content);
  MetricsLog log(disk.files, kPath);
  REQUIRE(log.refresh().has_value());
  CHECK(disk.files.content(kPath) == content);
  CHECK(log.last_seq() == 3);
  CHECK(must(log.line_of("aaaa")) == kFirst);
}

TEST_CASE("a file that somebody else changed or deleted is read again") {
  Disk disk;
  MetricsLog log(disk.files, kPath);
  REQUIRE(log.append(kFirst).has_value());
  disk.clock.advance(std::chrono::seconds{1});
  disk.files.put_file(kPath, kFirst + "\n" + kThird + "\n");
  REQUIRE(log.refresh().has_value());
  CHECK(log.last_seq() == 3);
  REQUIRE(disk.files.remove_file(kPath).has_value());
  REQUIRE(log.refresh().has_value());
  CHECK(log.last_seq() == 0);
}

TEST_CASE("a long file is read in slices, a mebibyte each") {
  Disk disk;
  disk.files.put_file(kPath, long_log());
  MetricsLog log(disk.files, kPath, {}, [] { return true; });

  const int cut = slices([&] {
    disk.files.reset_calls();
    const Status done = log.refresh();
    CHECK(disk.files.count("read_at") <= 1);
    return done;
  });

  CHECK(cut == 2);  // of 3 MB
  CHECK(log.last_seq() == 3);
  CHECK(must(log.line_of("cccc")) == kThird);
}

TEST_CASE("a long file that is another one in the next slice is read from its beginning") {
  Disk disk;
  disk.files.put_file(kPath, long_log());
  MetricsLog log(disk.files, kPath, {}, [] { return true; });
  REQUIRE(log.refresh().error().code == ErrorCode::kCancelled);

  disk.clock.advance(std::chrono::seconds{1});
  SECTION("longer") {
    disk.files.put_file(kPath, kSecond + "\n" + long_log());
    CHECK(slices([&] { return log.refresh(); }) == 2);
    CHECK(must(log.line_of("bbbb")) == kSecond);
    CHECK(must(log.line_of("cccc")) == kThird);
  }
  SECTION("shorter") {
    disk.files.put_file(kPath, kSecond + "\n");
    CHECK(log.refresh().has_value());
    CHECK_FALSE(log.holds("aaaa"));
    CHECK(log.last_seq() == 2);
  }
  SECTION("gone") {
    must(disk.files.remove_file(kPath));
    CHECK(log.refresh().has_value());
    CHECK(log.last_seq() == 0);
  }
}

TEST_CASE("a line is put back into the middle of a long file in slices, and readers see it whole") {
  const std::string before = long_log();
  const std::string after = kFirst + "\n" + before.substr(kFirst.size() + 1, 1'500'015) + kSecond +
                            "\n" + before.substr(kFirst.size() + 1 + 1'500'015);
  REQUIRE(after.size() == before.size() + kSecond.size() + 1);
  Disk disk;
  disk.files.put_file(kPath, before);
  MetricsLog log(disk.files, kPath, {}, [] { return true; });
  REQUIRE(slices([&] { return log.refresh(); }) == 2);

  disk.files.reset_calls();
  REQUIRE(log.restore({{2, kSecond}}).error().code == ErrorCode::kCancelled);
  const int cut = slices([&] {
    CHECK(disk.files.count("read_at") <= 1);
    CHECK(disk.files.count("append") <= 1);
    const auto content = disk.files.content(kPath);
    CHECK((content == before || content == after));
    disk.files.reset_calls();
    return log.refresh();
  });

  CHECK(cut >= 3);
  CHECK(disk.files.content(kPath) == after);
  CHECK(must(log.line_of("bbbb")) == kSecond);
  CHECK(disk.files.tree("/out/_evalcar") == std::vector<std::string>{"metrics.jsonl"});
}

TEST_CASE("a kill at any call while a line is put back leaves the old file or the new one") {
  const std::string before = long_log();
  for (std::size_t n = 1; n < 40; ++n) {
    INFO("killed at call " << n);
    Disk disk;
    disk.files.put_file(kPath, before);
    {
      MetricsLog log(disk.files, kPath, {}, [] { return true; });
      REQUIRE(slices([&] { return log.refresh(); }) == 2);
      disk.files.die_at_call(n);
      Status done = log.restore({{2, kSecond}});
      for (int i = 0; i < 20 && !done.has_value(); ++i) done = log.refresh();
    }
    disk.files.power_cut();

    const std::string there = disk.files.content(kPath).value_or("");
    const bool is_new = there.size() == before.size() + kSecond.size() + 1;
    CHECK((there == before || is_new));
    MetricsLog log(disk.files, kPath);
    must(log.refresh());
    CHECK(log.holds("bbbb") == is_new);
    CHECK(log.holds("cccc"));
  }
}
