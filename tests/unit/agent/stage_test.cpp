#include "agent/stage/stage.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/agent/temporary_folder.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::stage;
using evalcar::test::FakeClock;
using evalcar::test::MemoryFileSystem;

namespace {

struct Disk {
  FakeClock clock;
  MemoryFileSystem files{clock};
  std::string checkpoint = "/out/checkpoint-5";
  std::string leases = "/out/_evalcar/leases";

  Disk() { write("weights"); }
  void write(const std::string& weights) {
    files.put_file("/out/checkpoint-5/model/rank_0.pt", weights);
    files.put_file("/out/checkpoint-5/config.json", "{}");
    clock.advance(std::chrono::seconds(1));
  }
  /// As on file systems without hard links.
  void forbid_links() { files.mount("/out/_evalcar", 99, 0xef53); }
  std::vector<watch::WatchedFile> judged() const {
    std::vector<watch::WatchedFile> list;
    for (const char* const name : {"model/rank_0.pt", "config.json"}) {
      list.push_back({name, files.info_followed(join_path(checkpoint, name)).value()});
    }
    return list;
  }
};

}  // namespace

TEST_CASE("a lease keeps the files readable after the trainer removed the checkpoint") {
  Disk disk;
  Stage stage(disk.files, disk.leases, nullptr);

  const auto lease = stage.acquire("5-1-regular", disk.checkpoint, disk.judged(), 0);
  REQUIRE(lease.has_value());
  REQUIRE(remove_tree(disk.files, disk.checkpoint).has_value());

  CHECK(lease->method == Method::kLinked);
  CHECK(lease->dir == disk.leases + "/5-1-regular");
  CHECK(read_file(disk.files, lease->dir + "/model/rank_0.pt", 100).value() == "weights");
  CHECK(stage.held().bytes() == 9);
  CHECK(stage.held().bytes_of("5-1-regular") == 9);

  REQUIRE(stage.release(lease->dir).has_value());
  CHECK_FALSE(disk.files.info(lease->dir).has_value());
}

TEST_CASE("taking a lease changes nothing in the checkpoint's folder") {
  Disk disk;
  Stage stage(disk.files, disk.leases, nullptr);
  const FileInfo before = disk.files.info(disk.checkpoint).value();
  const FileInfo model_before = disk.files.info(disk.checkpoint + "/model").value();

  REQUIRE(stage.acquire("5-1-regular", disk.checkpoint, disk.judged(), 0).has_value());

  CHECK(disk.files.info(disk.checkpoint)->mtime_ns == before.mtime_ns);
  CHECK(disk.files.info(disk.checkpoint + "/model")->mtime_ns == model_before.mtime_ns);
  CHECK(disk.files.list(disk.checkpoint, 10)->size() == 2);
  const auto root = disk.files.list("/out", 10);
  for (const auto& entry : *root) {
    CHECK((entry.name == "checkpoint-5" || entry.name == "_evalcar"));
  }
}

TEST_CASE("a file rewritten in place is seen through the link") {
  Disk disk;
  Stage stage(disk.files, disk.leases, nullptr);
  const auto lease = stage.acquire("5-1-regular", disk.checkpoint, disk.judged(), 0);
  REQUIRE(lease.has_value());
  CHECK(stage.check(*lease) == Integrity::kUnchanged);

  disk.clock.advance(std::chrono::seconds(1));
  auto file = disk.files.open_appendable(disk.checkpoint + "/model/rank_0.pt", 0644);
  REQUIRE((*file)->append("!").has_value());

  std::string which;
  CHECK(stage.check(*lease, &which) == Integrity::kChanged);
  CHECK(which.ends_with("rank_0.pt"));
}

TEST_CASE("a file that changed or went since it was judged is not leased, and nothing is left") {
  Disk disk;
  Stage stage(disk.files, disk.leases, nullptr);
  const auto judged = disk.judged();
  disk.clock.advance(std::chrono::seconds(1));
  disk.write("other");

  const auto changed = stage.acquire("5-1-regular", disk.checkpoint, judged, 1000);
  REQUIRE_FALSE(changed.has_value());
  CHECK(changed.error().code == ErrorCode::kUnavailable);

  REQUIRE(disk.files.remove_file(disk.checkpoint + "/config.json").has_value());
  const auto gone = stage.acquire("5-1-regular", disk.checkpoint, judged, 1000);
  REQUIRE_FALSE(gone.has_value());
  CHECK_FALSE(disk.files.info(disk.leases + "/5-1-regular").has_value());
}

TEST_CASE("without hard links the files are copied, or beyond the budget read in place") {
  Disk disk;
  disk.forbid_links();
  Stage stage(disk.files, disk.leases, nullptr);

  const auto copied = stage.acquire("5-1-regular", disk.checkpoint, disk.judged(), 9);
  REQUIRE(copied.has_value());
  CHECK(copied->method == Method::kCopied);
  CHECK(read_file(disk.files, copied->dir + "/model/rank_0.pt", 100).value() == "weights");

  const auto in_place = stage.acquire("5-1-regular", disk.checkpoint, disk.judged(), 8);
  REQUIRE(in_place.has_value());
  CHECK(in_place->method == Method::kInPlace);
  CHECK(in_place->dir == disk.checkpoint);
  CHECK_FALSE(disk.files.info(disk.leases + "/5-1-regular").has_value());
  REQUIRE(stage.release(in_place->dir).has_value());
  CHECK(disk.files.info(disk.checkpoint).has_value());
}

TEST_CASE(
    "what is only worth keeping is never read in place: a refusal says why, and leaves nothing") {
  Disk disk;
  disk.forbid_links();
  Stage stage(disk.files, disk.leases, nullptr);

  const auto refused = stage.keep("5-1-regular", disk.checkpoint, disk.judged(), 8);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().message.find("cross-device") != std::string::npos);
  CHECK_FALSE(disk.files.info(disk.leases + "/5-1-regular").has_value());

  const auto copied = stage.keep("5-1-regular", disk.checkpoint, disk.judged(), 9);
  REQUIRE(copied.has_value());
  CHECK(copied->method == Method::kCopied);
}

TEST_CASE("without hard links the files are cloned where that can be, whatever the budget") {
  Disk disk;
  disk.files.allow_clones();
  disk.files.fail_operation("hard_link", EPERM);  // fs.protected_hardlinks
  Stage stage(disk.files, disk.leases, nullptr);

  const auto lease = stage.acquire("5-1-regular", disk.checkpoint, disk.judged(), 0);

  REQUIRE(lease.has_value());
  CHECK(lease->method == Method::kCloned);
  CHECK(disk.files.count("append") == 0);  // nothing was copied
  disk.write("rewritten");                 // in place, which a link would show
  CHECK(read_file(disk.files, lease->dir + "/model/rank_0.pt", 100).value() == "weights");
  CHECK(stage.check(*lease) == Integrity::kUnchanged);
  REQUIRE(remove_tree(disk.files, disk.checkpoint).has_value());
  CHECK(stage.check(*lease) == Integrity::kUnchanged);
}

TEST_CASE("where the second file cannot be cloned all are copied") {
  Disk disk;
  disk.files.allow_clones();
  disk.files.fail_operation("hard_link", EPERM);
  int clones = 0;
  disk.files.on_call([&](const test::Call& call) {
    if (call.operation == "clone_file" && ++clones == 2) {
      disk.files.fail_operation("clone_file", EOPNOTSUPP);
    }
  });
  Stage stage(disk.files, disk.leases, nullptr);

  const auto lease = stage.acquire("5-1-regular", disk.checkpoint, disk.judged(), 100);

  REQUIRE(lease.has_value());
  CHECK(lease->method == Method::kCopied);
  CHECK(disk.files.tree(lease->dir) ==
        std::vector<std::string>{"config.json", "model/", "model/rank_0.pt"});
}

TEST_CASE("a checkpoint that is being removed is not copied file by file") {
  Disk disk;
  const auto judged = disk.judged();
  disk.files.allow_clones();
  disk.files.fail_operation("hard_link", EPERM);
  disk.files.on_call([&disk](const test::Call& call) {
    if (call.operation == "clone_file")
      (void)disk.files.remove_file("/out/checkpoint-5/config.json");
  });
  Stage stage(disk.files, disk.leases, nullptr);

  const auto lease = stage.acquire("5-1-regular", disk.checkpoint, judged, 100);

  REQUIRE_FALSE(lease.has_value());
  CHECK(lease.error().code == ErrorCode::kNotFound);
  CHECK_FALSE(disk.files.exists(disk.leases + "/5-1-regular"));
}

TEST_CASE("a long copy ends when the agent is told to stop") {
  Disk disk;
  disk.forbid_links();
  Stage stage(disk.files, disk.leases, [] { return true; });

  const auto lease = stage.acquire("5-1-regular", disk.checkpoint, disk.judged(), 100);

  REQUIRE_FALSE(lease.has_value());
  CHECK(lease.error().code == ErrorCode::kCancelled);
  CHECK_FALSE(disk.files.info(disk.leases + "/5-1-regular").has_value());
}

TEST_CASE("leases of a killed process are reopened or removed") {
  Disk disk;
  {
    Stage killed(disk.files, disk.leases, nullptr);
    REQUIRE(killed.acquire("5-1-regular", disk.checkpoint, disk.judged(), 0).has_value());
    REQUIRE(killed.acquire("5-1-ema", disk.checkpoint, disk.judged(), 0).has_value());
  }
  Stage stage(disk.files, disk.leases, nullptr);

  REQUIRE(stage.leave_others({disk.leases + "/5-1-regular"}).has_value());
  REQUIRE(stage.remove_leftovers({}, [] { return false; }).has_value());

  CHECK_FALSE(stage.reopen(disk.leases + "/5-1-ema", disk.checkpoint, {}).has_value());
  const auto lease = stage.reopen(disk.leases + "/5-1-regular", disk.checkpoint, {});
  REQUIRE(lease.has_value());
  CHECK(lease->files.size() == 2);
}

TEST_CASE("the trainer's unlink changes only the ctime of a leased file") {
  const testing::TemporaryFolder folder;
  RealFileSystem files;
  folder.write("checkpoint-5/w.pt", "weights");
  const std::string path = folder / "checkpoint-5/w.pt";
  Stage stage(files, folder / "leases", nullptr);
  const std::vector<watch::WatchedFile> judged = {{"w.pt", files.info(path).value()}};
  auto lease = stage.acquire("5-1-regular", folder / "checkpoint-5", judged, 0);
  REQUIRE(lease.has_value());
  CHECK(stage.check(*lease) == Integrity::kUnchanged);

  lease->files[0].identity.ctime_ns -= 1;  // the kernel's clock ticks in milliseconds
  REQUIRE(files.remove_file(path).has_value());

  CHECK(stage.check(*lease) == Integrity::kOnlyCtime);
}

TEST_CASE(
    "a lease is known by its name, however the output directory was spelled when it was taken") {
  Disk disk;
  Stage stage(disk.files, disk.leases, nullptr);
  REQUIRE(stage.acquire("5-1-regular", disk.checkpoint, disk.judged(), 0).has_value());
  REQUIRE(remove_tree(disk.files, disk.checkpoint).has_value());
  const std::string other = "/link/to/out/_evalcar/leases/5-1-regular";

  REQUIRE(stage.leave_others({other}).has_value());
  CHECK_FALSE(stage.has_leftovers());
  CHECK(stage.held().bytes() == 9);
  const auto lease = stage.reopen(other, "/link/to/out/checkpoint-5", {});
  REQUIRE(lease.has_value());
  CHECK(lease->dir == disk.leases + "/5-1-regular");

  CHECK(stage.own("/link/to/out/checkpoint-5").empty());
  REQUIRE(stage.release(other).has_value());
  CHECK_FALSE(disk.files.info(disk.leases + "/5-1-regular").has_value());
}

TEST_CASE("where not even an old lease can be removed the checkpoint is read in place") {
  Disk disk;
  disk.files.put_file(disk.leases + "/5-1-regular/config.json", "{}");
  disk.files.set_read_only("/out/_evalcar");
  Stage stage(disk.files, disk.leases, nullptr);

  const auto lease = stage.acquire("5-1-regular", disk.checkpoint, disk.judged(), 1000);

  REQUIRE(lease.has_value());
  CHECK(lease->method == Method::kInPlace);
  CHECK(lease->dir == disk.checkpoint);
}

TEST_CASE(
    "a lease of several checkpoints holds each as a member, and the newest one's configuration") {
  Disk disk;
  Stage stage(disk.files, disk.leases, nullptr);
  const auto first = stage.acquire("5-1-regular", disk.checkpoint, disk.judged(), 0);
  REQUIRE(first.has_value());
  const auto identities = [&] {
    std::vector<state::FileIdentity> list;
    for (const auto& file : disk.judged()) {
      list.push_back(
          {file.relative, file.identity.inode, file.identity.size_bytes, file.identity.mtime_ns});
    }
    return list;
  };
  const std::vector<Member> members = {{"4", first->dir, identities()},
                                       {"5", disk.checkpoint, identities()}};

  const auto lease = stage.acquire_members("5-1-average", members);

  REQUIRE(lease.has_value());
  const std::string dir = disk.leases + "/5-1-average";
  CHECK(lease->dir == dir);
  CHECK(read_file(disk.files, dir + "/members.json", 100).value() ==
        "{\"members\":[\"4\",\"5\"]}\n");
  CHECK(disk.files.info(dir + "/members/4/model/rank_0.pt").has_value());
  CHECK(disk.files.info(dir + "/members/5/config.json").has_value());
  CHECK(disk.files.info(dir + "/config.json").has_value());
  CHECK_FALSE(disk.files.info(dir + "/model").has_value());
  CHECK(stage.check(*lease) == Integrity::kUnchanged);

  // The same bytes under several names count once; the trainer's name keeps them for itself.
  const std::uint64_t list_bytes = disk.files.info(dir + "/members.json")->size_bytes +
                                   disk.files.info(dir + "/.evalcar-fingerprint")->size_bytes;
  CHECK(stage.held().bytes() == list_bytes);
  REQUIRE(remove_tree(disk.files, disk.checkpoint).has_value());
  CHECK(stage.held().bytes() == list_bytes + 9);
  CHECK(stage.held().bytes_of("5-1-regular") == 9);
}

TEST_CASE("a lease of several checkpoints is refused whole if one of them was rewritten") {
  Disk disk;
  Stage stage(disk.files, disk.leases, nullptr);
  std::vector<state::FileIdentity> files;
  for (const auto& file : disk.judged()) {
    files.push_back(
        {file.relative, file.identity.inode, file.identity.size_bytes, file.identity.mtime_ns});
  }
  disk.write("another");

  const auto lease =
      stage.acquire_members("5-1-average", std::vector<Member>{{"5", disk.checkpoint, files}});

  REQUIRE_FALSE(lease.has_value());
  CHECK(lease.error().code == ErrorCode::kUnavailable);
  CHECK(stage.names().empty());
}

TEST_CASE("a lease of several checkpoints is not used once one of them was rewritten in place") {
  Disk disk;
  std::vector<state::FileIdentity> files;
  for (const auto& file : disk.judged()) {
    files.push_back(
        {file.relative, file.identity.inode, file.identity.size_bytes, file.identity.mtime_ns});
  }
  const std::string dir = disk.leases + "/5-1-average";
  {
    Stage stage(disk.files, disk.leases, nullptr);
    REQUIRE(stage.acquire_members("5-1-average", std::vector<Member>{{"5", disk.checkpoint, files}})
                .has_value());
    CHECK(stage.reopen(dir, disk.checkpoint, {}).has_value());
  }
  disk.write("another");

  const auto lease = Stage(disk.files, disk.leases, nullptr).reopen(dir, disk.checkpoint, {});

  REQUIRE_FALSE(lease.has_value());
  CHECK(lease.error().code == ErrorCode::kCorruption);
  CHECK(lease.error().message.find("was rewritten since they were leased") != std::string::npos);
}
