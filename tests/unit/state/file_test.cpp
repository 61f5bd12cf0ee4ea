// The file itself: refusals, damage, kills.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <fstream>

#include "store/base/hash.h"
#include "store/state/location.h"
#include "store/state/schema.h"
#include "store/state/sqlite.h"
#include "tests/unit/state/scenario.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::state;
using test::must;
using test::Scenario;
using test::TemporaryDirectory;
namespace fs = std::filesystem;

namespace {

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Result<std::unique_ptr<Store>> open_at(const std::string& path) {
  static test::FakeClock clock;
  static RealFileSystem files;
  return Store::open(files, clock, path);
}

}  // namespace

TEST_CASE("a new database is in WAL mode with our mark and version") {
  Scenario s;
  const auto connection = must(Connection::open(s.db(), Connection::Mode::kReadOnly, 100));
  CHECK(must(connection->first_text("PRAGMA journal_mode")) == "wal");
  CHECK(must(connection->first_text("PRAGMA user_version")) == std::to_string(kSchemaVersion));
  CHECK(must(connection->first_text("PRAGMA application_id")) == std::to_string(0x65766c63));
  CHECK(must(connection->first_text("PRAGMA integrity_check")) == "ok");
  CHECK(must(connection->first_text(
            "SELECT count(*) FROM pragma_table_list WHERE schema='main' AND type='table' AND "
            "strict = 0 AND name NOT LIKE 'sqlite_%'")) == "0");
}

TEST_CASE("a database of a newer version is refused and stays byte for byte as it is") {
  TemporaryDirectory folder;
  const std::string path = folder / "run.db";
  must(open_at(path));
  {
    const auto raw = must(Connection::open(path, Connection::Mode::kReadWriteCreate, 100));
    raw->set_checkpoint_on_close(true);
    must(raw->execute("PRAGMA user_version = 99"));
  }
  const std::string before = bytes_of(path);

  const auto opened = open_at(path);

  REQUIRE_FALSE(opened.has_value());
  CHECK(opened.error().code == ErrorCode::kUnsupported);
  CHECK(opened.error().message.find("schema version 99") != std::string::npos);
  CHECK(bytes_of(path) == before);
  CHECK(Reader::open(path).error().code == ErrorCode::kUnsupported);
}

TEST_CASE("a database of version 1 is migrated with everything that is in it") {
  Scenario s;
  const auto seen = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "f")));
  const std::int64_t run = s.run.id;
  s.store.reset();
  {
    const auto raw = must(Connection::open(s.db(), Connection::Mode::kReadWriteCreate, 100));
    raw->set_checkpoint_on_close(true);
    must(
        raw->execute("DROP INDEX run_by_mark; ALTER TABLE run DROP COLUMN mark; "
                     "ALTER TABLE checkpoint_kind DROP COLUMN files; "
                     "ALTER TABLE evaluation_task DROP COLUMN error_kind; "
                     "ALTER TABLE evaluation_task DROP COLUMN circumstances; "
                     "ALTER TABLE answer DROP COLUMN data; "
                     "PRAGMA user_version = 1"));
  }
  CHECK(Reader::open(s.db()).error().code == ErrorCode::kUnsupported);

  s.reopen();

  CHECK(s.run.id == run);
  CHECK(must(s.store->read().checkpoint(seen.checkpoint.id)).step == 5);
  const auto known = must(s.store->read().known_kinds(run));
  REQUIRE(known.size() == 1);
  CHECK(known[0].fingerprint == "f");
  CHECK(known[0].files.empty());
  CHECK_FALSE(must(s.store->observe_checkpoint(run, Scenario::seen(5, "f"))).is_new);
  const auto connection = must(Connection::open(s.db(), Connection::Mode::kReadOnly, 100));
  CHECK(must(connection->first_text("PRAGMA user_version")) == std::to_string(kSchemaVersion));
}

TEST_CASE("published rows of version 2 remember no lease, for they gave it up") {
  Scenario s;
  const std::int64_t published = s.plan(5).id;
  s.bring(published, EvaluationState::kScored);
  const std::int64_t leased = s.plan(10).id;
  s.bring(leased, EvaluationState::kLeased);
  s.store.reset();
  {
    const auto raw = must(Connection::open(s.db(), Connection::Mode::kReadWriteCreate, 100));
    raw->set_checkpoint_on_close(true);
    must(
        raw->execute("UPDATE evaluation SET lease_path = '/old'; "
                     "ALTER TABLE evaluation_task DROP COLUMN error_kind; "
                     "ALTER TABLE evaluation_task DROP COLUMN circumstances; "
                     "ALTER TABLE answer DROP COLUMN data; "
                     "PRAGMA user_version = 2"));
  }

  s.reopen();

  CHECK(s.get(published).lease_path.empty());
  CHECK(s.get(leased).lease_path == "/old");
}

TEST_CASE("somebody else's database is refused and stays as it is") {
  TemporaryDirectory folder;
  const std::string path = folder / "other.db";
  {
    const auto raw = must(Connection::open(path, Connection::Mode::kReadWriteCreate, 100));
    must(raw->execute("CREATE TABLE t(x)"));
  }
  const std::string before = bytes_of(path);
  CHECK(open_at(path).error().code == ErrorCode::kInvalidArgument);
  CHECK(bytes_of(path) == before);
}

TEST_CASE("a file that is no database is corruption, with a way out in the message") {
  TemporaryDirectory folder;
  const std::string path = folder / "run.db";
  std::ofstream(path) << std::string(8192, 'x');
  const auto opened = open_at(path);
  REQUIRE_FALSE(opened.has_value());
  CHECK(opened.error().code == ErrorCode::kCorruption);
  CHECK(opened.error().message.find("aside") != std::string::npos);
  CHECK(bytes_of(path) == std::string(8192, 'x'));
}

TEST_CASE("4 KiB of garbage in the middle of the database are noticed at the next start") {
  Scenario s;
  for (int step = 1; step <= 30; ++step) s.bring(s.plan(step).id, EvaluationState::kScored);
  s.store.reset();
  const auto pages = fs::file_size(s.db()) / 4096;
  REQUIRE(pages > 8);
  std::size_t noticed = 0;
  for (std::uintmax_t page = 0; page < pages; ++page) {
    const std::string copy = s.folder / ("copy" + std::to_string(page) + ".db");
    fs::copy_file(s.db(), copy);
    {
      std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(page * 4096));
      file << std::string(4096, '\xAA');
    }
    const auto opened = open_at(copy);
    INFO("page " << page);
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().code == ErrorCode::kCorruption);
    ++noticed;
  }
  CHECK(noticed == pages);
}

TEST_CASE("a second writer is refused by name of the first, and can follow it") {
  Scenario s;
  const auto second = open_at(s.db());
  REQUIRE_FALSE(second.has_value());
  CHECK(second.error().code == ErrorCode::kUnavailable);
  CHECK(second.error().message.find("pid " + std::to_string(::getpid())) != std::string::npos);
  CHECK(Store::writer_pid(s.db()) == ::getpid());
  s.store.reset();
  CHECK_FALSE(Store::writer_pid(s.db()).has_value());
  CHECK(open_at(s.db()).has_value());
}

TEST_CASE("a network file system is refused unless forced") {
  TemporaryDirectory folder;
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.mount(folder.path(), 9, 0x6969);

  const auto refused = Store::open(files, clock, folder / "run.db");
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == ErrorCode::kUnsupported);
  CHECK(refused.error().message.find("NFS") != std::string::npos);
  CHECK_FALSE(fs::exists(folder / "run.db"));
  CHECK(Store::open(files, clock, folder / "run.db", {.allow_network_file_system = true})
            .has_value());
}

TEST_CASE("a reader sees what was committed while the writer goes on, and cannot write") {
  Scenario s;
  s.plan(1);
  const Reader reader = must(Reader::open(s.db()));
  CHECK(must(reader.evaluations()).size() == 1);
  s.plan(2);
  CHECK(must(reader.evaluations()).size() == 2);
  const auto raw = must(Connection::open(s.db(), Connection::Mode::kReadOnly, 100));
  CHECK_FALSE(raw->execute("DELETE FROM evaluation").has_value());
  CHECK(Reader::open(s.folder / "none.db").error().code != ErrorCode::kCorruption);
}

TEST_CASE("somebody who holds the lock delays a write, which then tells that it is worth a retry") {
  Scenario s;
  s.store.reset();
  s.store = must(Store::open(s.files, s.clock, s.db(), {.busy_timeout_ms = 50}));
  const auto other = must(Connection::open(s.db(), Connection::Mode::kReadWriteCreate, 100));
  must(other->execute("BEGIN IMMEDIATE"));

  const auto blocked = s.store->ensure_run("other", "/o", 1, 1);
  REQUIRE_FALSE(blocked.has_value());
  CHECK(blocked.error().code == ErrorCode::kUnavailable);
  CHECK(blocked.error().retryable);
  must(other->execute("ROLLBACK"));
  CHECK(s.store->ensure_run("other", "/o", 1, 1).has_value());
}

TEST_CASE("a copy of the files at any moment, as after a kill, opens with the last transition") {
  Scenario s;
  const std::int64_t id = s.plan(1).id;
  using enum EvaluationState;
  const auto check = [&](EvaluationState expected, const std::string& name) {
    const std::string copy = s.folder / (name + ".db");
    fs::copy_file(s.db(), copy);
    fs::copy_file(s.db() + "-wal", copy + "-wal");
    const auto opened = must(open_at(copy));
    CHECK(must(opened->read().evaluation(id)).state == expected);
    must(opened->recover());
    CHECK(must(opened->read().evaluation(id)).state ==
          (expected == kLoading || expected == kEvaluating ? kLeased : expected));
  };
  check(kFound, "a");
  must(s.store->transition(id, kComplete));
  check(kComplete, "b");
  must(s.store->mark_leased(id, "/lease"));
  check(kLeased, "c");
  must(s.store->begin_attempt(id, "cpu"));
  check(kLoading, "d");
  must(s.store->record_loaded(id, "w", "float32"));
  check(kEvaluating, "e");
}

TEST_CASE("a writer killed at a random moment leaves no half transaction") {
  TemporaryDirectory folder;
  const std::string path = folder / "run.db";
  for (int round = 0; round < 5; ++round) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      test::FakeClock clock;
      RealFileSystem files;
      auto store = Store::open(files, clock, path);
      if (!store.has_value()) ::_exit(1);
      const auto run = (*store)->ensure_run("r", "/r", 1, 1);
      for (std::int64_t step = round * 100000;; ++step) {
        const auto seen = (*store)->observe_checkpoint(run->id, Scenario::seen(step, "f"));
        NewEvaluation wanted;
        wanted.checkpoint_id = seen->checkpoint.id;
        wanted.kind = "regular";
        wanted.settings.tasks = {"docvqa_val"};
        const auto e = (*store)->plan_evaluation(wanted);
        (void)(*store)->transition(e->id, EvaluationState::kComplete);
        (void)(*store)->mark_leased(e->id, "/l");
        (void)(*store)->begin_attempt(e->id, "cpu");
        if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      }
    }
    char one = 0;
    REQUIRE(::read(ready[0], &one, 1) == 1);
    ::usleep(static_cast<useconds_t>(1000 * (1 + 7 * round)));
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    ::close(ready[0]);
    ::close(ready[1]);

    const auto store = must(open_at(path));  // quick_check passes, the lock is free
    for (const Evaluation& e : must(store->read().evaluations())) {
      // An attempt row exists exactly if the evaluation got as far as loading.
      const bool began = e.state == EvaluationState::kLoading || e.attempts > 0;
      CHECK(must(store->read().attempts(e.id)).size() == (began ? 1U : 0U));
    }
    must(store->recover());
  }
}

TEST_CASE("the state directory follows systemd, then XDG, then home") {
  std::map<std::string, std::string> variables;
  const Environment environment = [&](const char* name) { return variables[name]; };
  CHECK(state_directory(environment) == "/var/lib/evalcar");
  variables["HOME"] = "/home/u";
  CHECK(state_directory(environment) == "/home/u/.local/state/evalcar");
  variables["XDG_STATE_HOME"] = "/xdg";
  CHECK(state_directory(environment) == "/xdg/evalcar");
  variables["STATE_DIRECTORY"] = "/var/lib/evalcar:/more";
  CHECK(state_directory(environment) == "/var/lib/evalcar");
}

TEST_CASE("a database is named after its output directory's real path, also before it exists") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_directory("/data/runs");
  must(files.symbolic_link("/data/runs", "/link"));
  const Environment environment = [](const char* name) {
    return std::string(name) == "STATE_DIRECTORY" ? std::string("/state") : std::string();
  };
  const std::string stem = "new-" + sha256_hex("/data/runs/new").substr(0, 8);
  CHECK(must(default_database_path(files, "/link/new", environment)) == "/state/" + stem + ".db");
  CHECK(must(list_databases(files, environment)).empty());
  files.put_file("/state/b.db", "");
  files.put_file("/state/a.db", "");
  files.put_file("/state/a.db-wal", "");
  CHECK(must(list_databases(files, environment)) ==
        std::vector<std::string>{"/state/a.db", "/state/b.db"});
}
