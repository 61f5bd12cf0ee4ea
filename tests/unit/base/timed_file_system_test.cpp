#include "store/base/timed_file_system.h"

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/forwarding_file_system.h"
#include "tests/unit/support/memory_file_system.h"
#include "tests/unit/support/temporary_directory.h"

using namespace evalcar;
using namespace evalcar::test;
using std::chrono::milliseconds;

namespace {

constexpr std::uint64_t kFuse = 0x65735546;
constexpr std::uint64_t kExt4 = 0xEF53;

/// Shared with calls that run on after a test ended.
struct Server {
  std::mutex mutex;
  std::condition_variable changed;
  bool silent = false;
  std::set<std::thread::id> threads;
  int calls = 0;

  void set_silent(bool now) {
    const std::scoped_lock lock(mutex);
    silent = now;
    changed.notify_all();
  }
  void answer() {
    std::unique_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    ++calls;
    changed.wait(lock, [this] { return !silent; });
  }
  std::size_t thread_count() {
    const std::scoped_lock lock(mutex);
    return threads.size();
  }
  int call_count() {
    const std::scoped_lock lock(mutex);
    return calls;
  }
};

/// A file of zeros that does not come before its server answers.
class RemoteFile final : public ReadableFile {
 public:
  explicit RemoteFile(std::shared_ptr<Server> server) : server_(std::move(server)) {}
  Result<std::size_t> read_at(std::uint64_t /*offset*/, std::span<std::byte> out) const override {
    server_->answer();
    std::fill(out.begin(), out.end(), std::byte{0});
    return out.size();
  }
  Result<FileInfo> info() const override { return FileInfo{}; }

 private:
  std::shared_ptr<Server> server_;
};

/// A mount of a server that may be silent.
class Mount final : public ForwardingFileSystem {
 public:
  explicit Mount(FileSystem& below) : ForwardingFileSystem(below) {}
  Result<FileInfo> info(const std::string& path) const override {
    const auto held = server;  // the mount may end before its server answers
    held->answer();
    if (path.ends_with("gone")) return make_error(ErrorCode::kNotFound, path);
    return FileInfo{};
  }
  Result<std::unique_ptr<ReadableFile>> open_readable(const std::string& /*path*/) const override {
    return std::unique_ptr<ReadableFile>(std::make_unique<RemoteFile>(server));
  }
  Result<std::uint64_t> file_system_type(const std::string& /*path*/) const override {
    return type.load();
  }

  std::shared_ptr<Server> server = std::make_shared<Server>();
  std::atomic<std::uint64_t> type = kFuse;
};

struct Bench {
  RealFileSystem disk;
  Mount mount{disk};
  std::atomic<bool> stopping = false;
  TimedFileSystem files{mount,
                        {.first = milliseconds(300),
                         .longest = milliseconds(300),
                         .rest = milliseconds(40),
                         .stopping = [this] { return stopping.load(); }}};

  Bench() { files.guard("/mnt"); }
  ~Bench() { mount.server->set_silent(false); }
  bool answers() { return files.answers("/mnt/x").has_value(); }
  void wait_until_it_answers() {
    while (!answers()) std::this_thread::yield();
  }
};

ErrorCode code_of(const Status& status) {
  return status.has_value() ? ErrorCode::kInternal : status.error().code;
}

}  // namespace

TEST_CASE("a call on a silent mount is given up, and the next ones fail without being made") {
  Bench bench;
  bench.mount.server->set_silent(true);

  const auto first = bench.files.info("/mnt/run/a");
  const auto second = bench.files.info("/mnt/run/b");

  REQUIRE_FALSE(first.has_value());
  CHECK(first.error().code == ErrorCode::kUnavailable);
  CHECK(first.error().message == "/mnt/run/a: its file system does not answer");
  REQUIRE_FALSE(second.has_value());
  CHECK(second.error().code == ErrorCode::kUnavailable);
  CHECK_FALSE(bench.answers());
  CHECK(bench.mount.server->call_count() == 1);
}

TEST_CASE("a mount that answers again is asked again, a moment later, by the same thread") {
  Bench bench;
  REQUIRE(bench.files.info("/mnt/a").has_value());
  bench.mount.server->set_silent(true);
  REQUIRE_FALSE(bench.files.info("/mnt/a").has_value());

  bench.mount.server->set_silent(false);
  bench.wait_until_it_answers();

  CHECK(bench.files.info("/mnt/a").has_value());
  CHECK(bench.files.info("/mnt/gone").error().code == ErrorCode::kNotFound);
  CHECK(bench.mount.server->thread_count() == 1);
  CHECK_FALSE(bench.mount.server->threads.contains(std::this_thread::get_id()));
}

TEST_CASE("a silent tree keeps neither another tree nor an unguarded path from being asked") {
  Bench bench;
  bench.files.guard("/other");
  bench.mount.server->set_silent(true);
  REQUIRE_FALSE(bench.files.info("/mnt/a").has_value());

  CHECK(bench.files.answers("/other/a").has_value());
  CHECK(bench.files.answers("/mntx").has_value());
  CHECK(bench.files.file_system_type("/other/a").has_value());
}

TEST_CASE(
    "a local tree is asked directly, and by the thread once something else is mounted there") {
  Bench bench;
  const TemporaryDirectory folder;
  bench.mount.type = kExt4;
  bench.files.guard(folder.path());
  REQUIRE(bench.files.info(folder.path() + "/a").has_value());
  CHECK(bench.mount.server->threads.contains(std::this_thread::get_id()));

  bench.mount.type = kFuse;
  REQUIRE(bench.files.list(folder.path(), 10).has_value());
  REQUIRE(bench.files.info(folder.path() + "/a").has_value());

  CHECK(bench.mount.server->thread_count() == 2);
}

TEST_CASE("a read that was given up does not write into the memory of who asked") {
  Bench bench;
  const auto file = bench.files.open_readable("/mnt/file");
  REQUIRE(file.has_value());
  std::array<std::byte, 8> bytes{};
  bytes.fill(std::byte{7});
  bench.mount.server->set_silent(true);

  const auto n = (*file)->read_at(0, bytes);
  bench.mount.server->set_silent(false);
  bench.wait_until_it_answers();

  CHECK_FALSE(n.has_value());
  CHECK(bytes[0] == std::byte{7});
  CHECK((*file)->read_at(0, bytes).value() == 8);
  CHECK(bytes[0] == std::byte{0});
}

TEST_CASE("a call that was given up and came back late is given more time the next time") {
  auto server = std::make_shared<Server>();
  CallThread thread(
      {.first = milliseconds(30), .longest = milliseconds(60'000), .rest = milliseconds(0)});
  server->set_silent(true);
  REQUIRE(code_of(thread.run("a", [server] { server->answer(); })) == ErrorCode::kUnavailable);
  std::this_thread::sleep_for(milliseconds(300));  // it is slow by this much
  server->set_silent(false);
  while (!thread.answers("a").has_value()) std::this_thread::yield();

  CHECK(thread.run("a", [] { std::this_thread::sleep_for(milliseconds(100)); }).has_value());
}

TEST_CASE("nothing is waited for once the program stops") {
  Bench bench;
  TimedFileSystem patient(bench.mount, {.first = milliseconds(600'000),
                                        .stopping = [&] { return bench.stopping.load(); }});
  patient.guard("/mnt");
  bench.mount.server->set_silent(true);
  bench.stopping = true;

  CHECK_FALSE(patient.info("/mnt/a").has_value());  // or the test hangs

  bench.mount.server->set_silent(false);
}

TEST_CASE("whoever asks for a call without a name is answered like the others") {
  Bench bench;
  const auto done = std::make_shared<std::atomic<int>>(0);
  REQUIRE(bench.files.perform("/mnt/lock", [done]() -> Status { return ++*done, Status(); })
              .has_value());
  bench.mount.server->set_silent(true);
  REQUIRE_FALSE(bench.files.info("/mnt/a").has_value());

  CHECK(code_of(bench.files.perform("/mnt/lock", [done]() -> Status {
          return ++*done, Status();
        })) == ErrorCode::kUnavailable);

  CHECK(*done == 1);
}

TEST_CASE(
    "on a mount like NFS a file is read by a name of ours, so that its folder can be deleted") {
  /// A disk that calls itself a FUSE mount.
  class Fuse final : public ForwardingFileSystem {
   public:
    using ForwardingFileSystem::ForwardingFileSystem;
    Result<std::uint64_t> file_system_type(const std::string& /*path*/) const override {
      return kFuse;
    }
  };
  namespace fs = std::filesystem;
  for (const bool has_folder : {true, false}) {
    CAPTURE(has_folder);
    const TemporaryDirectory run;
    const std::string ours = run / "_evalcar";
    if (has_folder) fs::create_directory(ours);
    fs::create_directory(run / "checkpoint-5");
    std::ofstream(run / "checkpoint-5/config.json") << "content";
    RealFileSystem disk;
    Fuse fuse(disk);
    TimedFileSystem files(fuse);
    files.guard(run.path());
    files.read_through_links(run.path(), ours);

    auto file = files.open_readable(run / "checkpoint-5/config.json");
    REQUIRE(file.has_value());
    CHECK(fs::hard_link_count(run / "checkpoint-5/config.json") == (has_folder ? 2U : 1U));
    fs::remove_all(run / "checkpoint-5");
    std::array<std::byte, 7> bytes{};
    CHECK((*file)->read_at(0, bytes).value() == bytes.size());
    CHECK(std::to_integer<char>(bytes[0]) == 'c');
    file->reset();
    while (has_folder && !fs::is_empty(ours)) std::this_thread::yield();  // or the test hangs

    CHECK(files.open_readable(run / "checkpoint-5/config.json").error().code ==
          ErrorCode::kNotFound);
    CHECK((!has_folder || fs::is_empty(ours)));
  }
}

TEST_CASE("what needs no answer is done when the file system answers again, and not waited for") {
  Bench bench;
  const auto done = std::make_shared<std::atomic<int>>(0);
  const auto held = std::make_shared<int>(1);
  bench.mount.server->set_silent(true);
  REQUIRE_FALSE(bench.files.info("/mnt/a").has_value());

  bench.files.perform_later("/mnt/lock", [done, held] { ++*done; });
  CHECK(*done == 0);

  bench.mount.server->set_silent(false);
  while (*done == 0) std::this_thread::yield();
  while (held.use_count() > 1) std::this_thread::yield();  // or the test hangs
}

TEST_CASE("a folder that is left to its owner is not made, nor anything above it on the way") {
  FakeClock clock;
  MemoryFileSystem disk(clock);
  TimedFileSystem files(disk);
  files.leave_to_owner("/runs/one/out");

  CHECK(code_of(make_directories(files, "/runs/one/out/_evalcar/leases")) == ErrorCode::kNotFound);
  CHECK_FALSE(files.info("/runs").has_value());

  CHECK(make_directories(files, "/runs/one/state").has_value());
  CHECK(code_of(make_directories(files, "/runs/one/out")) == ErrorCode::kNotFound);
  REQUIRE(files.make_directory("/runs/one/out", 0755).has_value());  // by its owner
  CHECK(make_directories(files, "/runs/one/out/_evalcar").has_value());
}
