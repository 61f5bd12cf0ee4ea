// The file itself: refusals, damage, kills.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <fstream>
#include <set>

#include "store/state/picture_names.h"
#include "store/state/schema.h"
#include "store/state/sqlite.h"
#include "tests/unit/state/scenario.h"
#include "tests/unit/state/version_2_database.h"
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

void make_version_2(const std::string& path) {
  const auto raw = must(Connection::open(path, Connection::Mode::kReadWriteCreate, 100));
  raw->set_checkpoint_on_close(true);
  must(raw->execute(test::kVersion2Database));
}

/// Of a file of version 2: what version 3 added.
void make_version_3(const std::string& path) {
  const auto raw = must(Connection::open(path, Connection::Mode::kReadWriteCreate, 100));
  raw->set_checkpoint_on_close(true);
  must(
      raw->execute("ALTER TABLE evaluation_task ADD COLUMN error_kind TEXT NOT NULL DEFAULT ''; "
                   "ALTER TABLE evaluation_task ADD COLUMN circumstances TEXT NOT NULL DEFAULT ''; "
                   "ALTER TABLE answer ADD COLUMN data TEXT NOT NULL DEFAULT ''; "
                   "UPDATE answer SET data = 'v1'; "
                   "UPDATE evaluation SET lease_path = '' WHERE state IN ('scored', 'published'); "
                   "PRAGMA user_version = 3"));
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

TEST_CASE("an older database keeps what it shows, and nothing of it is taken for new work") {
  const int version = GENERATE(2, 3);
  TemporaryDirectory folder;
  const std::string path = folder / "run.db";
  make_version_2(path);
  if (version == 3) make_version_3(path);
  const std::string shown =
      "SELECT group_concat(row, ';') FROM (SELECT step || ' ' || task || ' ' || metric || ' ' || "
      "value || ' ' || n || ' ' || (SELECT count(*) FROM samples s WHERE s.step = m.step) AS row "
      "FROM metrics m)";
  const auto text_of = [&](const std::string& sql) {
    return must(must(Connection::open(path, Connection::Mode::kReadOnly, 100))->first_text(sql));
  };
  const std::string before = text_of(shown);
  CHECK(before == "5 docvqa_val anls 0.675136051220308 3 3");
  CHECK(Reader::open(path).error().code == ErrorCode::kUnsupported);

  const auto store = must(open_at(path));

  CHECK(text_of("PRAGMA user_version") == std::to_string(kSchemaVersion));
  CHECK(text_of("PRAGMA integrity_check") == "ok");
  CHECK(text_of(shown) == before);
  CHECK(text_of("SELECT fingerprint FROM metrics") == "");
  CHECK(text_of("SELECT count(*) FROM answer") == "1");
  // A published row remembers a lease only while it holds one.
  CHECK(must(store->read().evaluation(1)).lease_path.empty());
  CHECK(must(store->read().evaluation(2)).lease_path == "/out/run/_evalcar/leases/10-1-regular");
  const auto old_result = must(store->read().result(1));
  CHECK(old_result.tasks.at(0).fingerprint.empty());
  CHECK(old_result.tasks.at(0).n_effective == 3);
  int lines = 0;
  must(store->read().for_each_sample(1, "docvqa_val", [&](std::string_view) -> Status {
    ++lines;
    return {};
  }));
  CHECK(lines == 3);
  const auto raw = must(Connection::open(path, Connection::Mode::kReadOnly, 100));
  CHECK_FALSE(must(must(raw->prepare("PRAGMA foreign_key_check")).step()));

  // The interrupted evaluation goes on: its old answer is not sent along.
  must(store->recover());
  const std::string weights = must(store->read().evaluation(2)).weights_sha256;
  must(store->begin_attempt(2, "cpu"));
  must(store->record_loaded(2, weights, "float32"));
  CHECK(must(store->read().answers(2)).empty());

  // The step that is published is written again with the same weights: it is measured anew.
  const Checkpoint old = must(store->read().checkpoint(1));
  const auto again = must(store->observe_checkpoint(old.run_id, Scenario::seen(5, "rewritten")));
  NewEvaluation wanted;
  wanted.checkpoint_id = again.checkpoint.id;
  wanted.kind = "regular";
  wanted.settings = must(store->read().evaluation(1)).settings;
  const std::int64_t id = must(store->plan_evaluation(wanted)).id;
  must(store->transition(id, EvaluationState::kComplete));
  must(store->mark_leased(id, "/lease"));
  must(store->begin_attempt(id, "cpu"));
  const std::string same = must(store->read().evaluation(1)).weights_sha256;
  must(store->record_loaded(id, same, "float32"));
  const std::vector<protocol::TaskFingerprint> now = {{"docvqa_val", "f1"}};
  CHECK_FALSE(must(store->record_prepared(id, now)).duplicate_of.has_value());
  protocol::EvaluationResult result;
  result.weights_sha256 = same;
  result.tasks = {test::anls_result("docvqa_val", 0.25)};
  must(store->record_result(id, result));
  CHECK(text_of("SELECT value || ' ' || fingerprint FROM metrics") == "0.25 f1");
  CHECK(text_of("SELECT count(*) FROM result") == "2");
}

TEST_CASE("a database of version 1 is migrated with everything that is in it") {
  TemporaryDirectory folder;
  const std::string path = folder / "run.db";
  make_version_2(path);
  {
    const auto raw = must(Connection::open(path, Connection::Mode::kReadWriteCreate, 100));
    raw->set_checkpoint_on_close(true);
    must(
        raw->execute("DROP INDEX run_by_mark; ALTER TABLE run DROP COLUMN mark; "
                     "ALTER TABLE checkpoint_kind DROP COLUMN files; PRAGMA user_version = 1"));
  }
  CHECK(Reader::open(path).error().code == ErrorCode::kUnsupported);

  const auto store = must(open_at(path));

  const Run run = must(store->ensure_run("run-01234567", "/out/run", 65024, 11027627));
  CHECK(run.name == "run-01234567-1");
  CHECK(must(store->read().checkpoint(1)).step == 5);
  const auto known = must(store->read().known_kinds(run.id));
  REQUIRE(known.size() == 2);
  CHECK(known[0].fingerprint == "becf19b3193f368b6d4bdf6e8eb718af");
  CHECK(known[0].files.empty());
  const std::string fingerprint = known[0].fingerprint;
  CHECK_FALSE(must(store->observe_checkpoint(run.id, Scenario::seen(5, fingerprint))).is_new);
  const auto connection = must(Connection::open(path, Connection::Mode::kReadOnly, 100));
  CHECK(must(connection->first_text("PRAGMA user_version")) == std::to_string(kSchemaVersion));
}

TEST_CASE("a database of version 5 keeps all its rows, and takes interim scores from then on") {
  Scenario s;
  const std::int64_t done = s.plan(5).id;
  s.bring(done, EvaluationState::kScored, "w1", 0.5);
  must(s.store->begin_publication(
      done, 0, [](std::int64_t, auto) -> Result<std::string> { return std::string("line"); }));
  must(s.store->finish_publication(done, {"metrics.jsonl"}));
  const std::int64_t waiting = s.plan(6).id;
  s.bring(waiting, EvaluationState::kLeased);
  must(s.store->transition(waiting, EvaluationState::kSkipped, "cancelled"));
  must(s.store->ask_again(waiting, "retry"));
  must(s.store->mark_leased(waiting, "/out/run/_evalcar/leases/x"));
  s.store.reset();
  {
    const auto raw = must(Connection::open(s.db(), Connection::Mode::kReadWriteCreate, 100));
    must(
        raw->execute("DROP VIEW interim_metrics; DROP TABLE interim_metric; DROP TABLE interim; "
                     "DROP TABLE unfinished_folder; ALTER TABLE answer DROP COLUMN cut_off; "
                     "DROP VIEW metrics; DROP VIEW samples; DROP TABLE document_pictures; "
                     "DROP INDEX task_by_result; ALTER TABLE result DROP COLUMN question; "
                     "ALTER TABLE run DROP COLUMN settings_sha256; "
                     "ALTER TABLE run DROP COLUMN average_settings_sha256; "
                     "CREATE VIEW metrics AS SELECT 1; CREATE VIEW samples AS SELECT 1; "
                     "PRAGMA user_version = 5"));
  }

  s.reopen();

  CHECK(s.state_of(done) == EvaluationState::kPublished);
  CHECK(must(s.store->read().publication(done))->line == "line");
  CHECK(must(s.store->read().metrics()).size() == 1);
  CHECK(must(s.store->read().metrics()).at(0).value == 0.5);
  CHECK(s.get(waiting).asked);
  must(s.store->begin_attempt(waiting, "cpu"));
  must(s.store->record_loaded(waiting, "w2", "float32"));
  protocol::Interim interim{.weights_sha256 = "w2", .fraction = 0.1};
  interim.tasks.resize(1);
  interim.tasks[0].task = "docvqa_val";
  interim.tasks[0].n = 20;
  interim.tasks[0].documents = 200;
  interim.tasks[0].metrics = {{"anls", "none", 0.25, 0.1, "", "", true}};
  const auto told = must(s.store->record_interim(
      waiting, interim, "key", 0,
      [](std::int64_t, auto) -> Result<std::string> { return std::string("part"); }));
  CHECK(told.seq == 2);
  const auto connection = must(Connection::open(s.db(), Connection::Mode::kReadOnly, 100));
  CHECK(must(connection->first_text("PRAGMA user_version")) == std::to_string(kSchemaVersion));
  CHECK(must(connection->first_text("SELECT step || ' ' || value FROM interim_metrics")) ==
        "6 0.25");
}

TEST_CASE("a database of version 8 keeps its samples, and knows their pictures from then on") {
  Scenario s;
  s.bring(s.plan(5).id, EvaluationState::kScored, "w1");
  s.store.reset();
  {
    const auto raw = must(Connection::open(s.db(), Connection::Mode::kReadWriteCreate, 100));
    must(
        raw->execute("DROP VIEW metrics; DROP VIEW samples; DROP TABLE document_pictures; "
                     "DROP INDEX task_by_result; ALTER TABLE result DROP COLUMN question; "
                     "CREATE VIEW metrics AS SELECT 1; CREATE VIEW samples AS SELECT 1; "
                     "PRAGMA user_version = 8"));
  }
  std::set<std::string> names;
  must(add_picture_names(s.db(), names));
  CHECK(names.empty());

  s.reopen();
  s.question = "q1";
  s.bring(s.plan(7).id, EvaluationState::kScored, "w3");
  const auto numbers = must(s.store->read().metrics());
  REQUIRE(numbers.size() == 2);
  CHECK((numbers[0].question.empty() && numbers[0].configured && numbers[1].configured));
  const std::int64_t later = s.plan(6).id;
  s.bring(later, EvaluationState::kEvaluating, "w2");
  const std::string name = std::string(64, 'a') + ".jpg";
  must(s.store->record_samples(
      later, std::vector<protocol::Scored>{{"", "docvqa_val", 0, "{}", "f1", {name}}}));

  // The same document of the same fingerprint: the same picture, also at the step before.
  const auto connection = must(Connection::open(s.db(), Connection::Mode::kReadOnly, 100));
  CHECK(must(connection->first_text("SELECT group_concat(step || ' ' || doc_id || ' ' || pictures, "
                                    "';') FROM samples WHERE step = 5")) ==
        "5 0 [\"" + name + "\"];5 1 []");
  must(add_picture_names(s.db(), names));
  CHECK(names == std::set<std::string>{name});
}

TEST_CASE("an old database whose rows refer to nothing is corruption and stays as it is") {
  TemporaryDirectory folder;
  const std::string path = folder / "run.db";
  make_version_2(path);
  must(must(Connection::open(path, Connection::Mode::kReadWriteCreate, 100))
           ->execute("DELETE FROM result"));

  const auto opened = open_at(path);

  REQUIRE_FALSE(opened.has_value());
  CHECK(opened.error().code == ErrorCode::kCorruption);
  const auto raw = must(Connection::open(path, Connection::Mode::kReadOnly, 100));
  CHECK(must(raw->first_text("PRAGMA user_version")) == "2");
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

TEST_CASE("an empty file is a damaged database, since a new one appears whole") {
  TemporaryDirectory folder;
  const std::string path = folder / "run.db";
  std::ofstream(path).close();
  CHECK(open_at(path).error().code == ErrorCode::kCorruption);
}

TEST_CASE(
    "a damaged database is set aside with its WAL, the last three are kept, and a new one works") {
  TemporaryDirectory folder;
  test::FakeClock clock;
  RealFileSystem files;
  const std::string path = folder / "run.db";
  for (int time = 0; time < 5; ++time) {
    const std::string garbage = std::string(8192, 'x') + std::to_string(time);
    std::ofstream(path) << garbage;
    std::ofstream(path + "-wal") << "wal";
    clock.advance(std::chrono::seconds(1));

    const auto store = must(Store::open(files, clock, path, {.set_damaged_aside = true}));

    const auto aside = must(damaged_files(files, path));
    REQUIRE_FALSE(aside.empty());
    CHECK(aside.size() == std::min<std::size_t>(static_cast<std::size_t>(time) + 1, 3));
    CHECK(store->set_aside().find(aside.back()) != std::string::npos);
    CHECK(bytes_of(aside.back()) == garbage);
    CHECK(bytes_of(aside.back() + "-wal") == "wal");
    CHECK(store->ensure_run("run-01234567", "/out/run", 1, 10).has_value());
  }
}

TEST_CASE("a database of a newer version is never set aside") {
  TemporaryDirectory folder;
  test::FakeClock clock;
  RealFileSystem files;
  const std::string path = folder / "run.db";
  must(open_at(path));
  must(must(Connection::open(path, Connection::Mode::kReadWriteCreate, 100))
           ->execute("PRAGMA user_version = 99"));
  const auto refused = Store::open(files, clock, path, {.set_damaged_aside = true});
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == ErrorCode::kUnsupported);
  CHECK(must(damaged_files(files, path)).empty());
}

TEST_CASE("a check of a large database is given up after its time, and the database is opened") {
  Scenario s;
  for (int step = 1; step <= 400; ++step) s.plan(step);
  s.store.reset();
  s.store =
      must(Store::open(s.files, s.clock, s.db(), {.check_limit = std::chrono::milliseconds(-1)}));
  CHECK(must(s.store->read().evaluations()).size() == 400);
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

TEST_CASE("a start outlasts what a killed agent had just forked") {
  const TemporaryDirectory folder;
  auto first = must(open_at(folder / "run.db"));
  const pid_t child = ::fork();  // shares the lock until it ends
  if (child == 0) {
    ::usleep(300'000);
    ::_exit(0);
  }
  first.reset();
  CHECK(open_at(folder / "run.db").has_value());
  ::waitpid(child, nullptr, 0);
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
