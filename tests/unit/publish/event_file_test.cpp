#include "agent/publish/event_log.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::publish;

namespace {
constexpr const char* kPath = "/out/_evalcar/tensorboard/events.out.tfevents.1.evalcar";
}

// RFC 3720 B.4, and the common check value of CRC catalogues.
TEST_CASE("CRC-32C gives the published values") {
  CHECK(crc32c("123456789") == 0xE3069283U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAU);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43U);
  CHECK(crc32c("") == 0);
}

TEST_CASE("records are read back up to the first torn one, wherever the file is cut") {
  const std::string content = record("first") + record("") + record("third, longer");
  CHECK(read_records(content).data == std::vector<std::string>{"first", "", "third, longer"});

  std::size_t whole = 0;
  for (std::size_t cut = 0; cut <= content.size(); ++cut) {
    const Records records = read_records(std::string_view(content).substr(0, cut));
    CHECK(records.whole_bytes <= cut);
    CHECK(records.data.size() >= whole);
    whole = records.data.size();
  }
  CHECK(whole == 3);
}

TEST_CASE("a flipped bit anywhere in a record ends the reading before it") {
  const std::string good = record("one");
  const std::string content = good + record("two");
  for (std::size_t byte = good.size(); byte < content.size(); ++byte) {
    std::string bad = content;
    bad[byte] = static_cast<char>(bad[byte] ^ 0x10);
    CHECK(read_records(bad).data == std::vector<std::string>{"one"});
  }
}

TEST_CASE("an event is appended once, after a file version, and torn tails are cut") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_directory("/out");
  const std::string first = step_event(10.5, 500, {{"eval/t/m", 0.5}});
  const std::string second = step_event(11.5, 1000, {{"eval/t/m", 0.75}});
  EventLog log(files, kPath);
  REQUIRE(log.append({{10.5, first}}).has_value());
  const std::string one = files.content(kPath).value();
  REQUIRE(log.append({{10.5, first}}).has_value());
  CHECK(files.content(kPath) == one);
  REQUIRE(log.append({{11.5, second}}).has_value());
  const std::string two = files.content(kPath).value();
  const Records records = read_records(two);
  REQUIRE(records.data.size() == 3);
  CHECK(records.data[0].find("brain.Event:2") != std::string::npos);
  CHECK(records.data[1] == first);
  CHECK(records.data[2] == second);

  for (std::size_t cut = one.size(); cut < two.size(); ++cut) {
    files.put_file(kPath, two.substr(0, cut));
    REQUIRE(log.append({{11.5, second}}).has_value());
    CHECK(files.content(kPath) == two);
  }
}

TEST_CASE("a long event file is read once, in slices of a mebibyte, and not for each event") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  std::string content = record(version_event(1));
  const auto event_of = [](std::int64_t step) {
    return step_event(1, step, {{"eval/t/m", 0.5}},
                      {{"eval/results", std::string(100'000, static_cast<char>('a' + step % 26))}});
  };
  for (std::int64_t step = 0; step < 30; ++step) content += record(event_of(step));
  files.put_file(kPath, content);
  EventLog log(files, kPath, [] { return true; });

  int cut = 0;
  for (; cut < 10; ++cut) {
    files.reset_calls();
    const Status done = log.refresh();
    CHECK(files.count("read_at") <= 1);
    if (done.has_value()) break;
    REQUIRE(done.error().code == ErrorCode::kCancelled);
  }
  files.reset_calls();
  REQUIRE(log.append({{2, event_of(29)}, {2, event_of(30)}}).has_value());
  REQUIRE(log.append({{2, event_of(31)}}).has_value());

  CHECK(cut >= 2);
  CHECK(files.count("read_at") == 0);
  CHECK(log.count() == 32);
  CHECK(files.content(kPath) == content + record(event_of(30)) + record(event_of(31)));
}

TEST_CASE("an event that is longer than a slice is known like the others") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  const std::string event = step_event(1, 5, {}, {{"eval/results", std::string(3'000'000, 'x')}});
  const std::string content = record(version_event(1)) + record(event);
  files.put_file(kPath, content);
  EventLog log(files, kPath);

  REQUIRE(log.append({{1, event}}).has_value());

  CHECK(files.content(kPath) == content);
}

TEST_CASE("events are learned anew from a file that somebody else changed") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_directory("/out");
  const std::string event = step_event(1, 5, {{"eval/t/m", 0.5}});
  EventLog log(files, kPath);
  REQUIRE(log.append({{1, event}}).has_value());
  const std::string content = files.content(kPath).value();

  SECTION("deleted") { REQUIRE(files.remove_file(kPath).has_value()); }
  SECTION("emptied") {
    clock.advance(std::chrono::seconds{1});
    files.put_file(kPath, "");
  }
  REQUIRE(log.append({{1, event}}).has_value());

  CHECK(files.content(kPath) == content);
}
