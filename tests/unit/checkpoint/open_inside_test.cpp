// What is read of a checkpoint is the file that was looked at: no link and no other file that takes
// its place in between.
#include <catch2/catch_test_macros.hpp>

#include "store/checkpoint/folder.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::checkpoint;

namespace {

const std::string kFolder = "/run/checkpoint-5";
const std::string kIndex = kFolder + "/index.json";

/// A folder with one file, a file elsewhere, and a hook that acts just before the file is opened.
struct Scene {
  Scene() : files(clock) {
    files.put_file(kIndex, "{}");
    files.put_file("/etc/secret", "key");
  }

  void before_opening(std::function<void()> act) {
    files.on_call([this, act = std::move(act)](const test::Call& call) {
      if (call.operation == "open_readable" && !acted) {
        acted = true;
        act();
      }
    });
  }
  Result<std::string> read() { return read_inside(files, Folder{kFolder, {}}, "index.json", 100); }

  test::FakeClock clock;
  test::MemoryFileSystem files;
  bool acted = false;
};

}  // namespace

TEST_CASE("a small file of a checkpoint is read whole, up to its limit") {
  Scene scene;
  CHECK(scene.read().value() == "{}");
  scene.files.put_file(kIndex, std::string(101, ' '));
  CHECK(scene.read().error().code == ErrorCode::kCorruption);
}

TEST_CASE("a file that is replaced by a link while it is opened is not read through the link") {
  Scene scene;
  scene.before_opening([&] {
    REQUIRE(scene.files.remove_file(kIndex).has_value());
    REQUIRE(scene.files.symbolic_link("/etc/secret", kIndex).has_value());
  });
  const auto text = scene.read();
  REQUIRE(scene.acted);
  REQUIRE_FALSE(text.has_value());
  CHECK(text.error().code == ErrorCode::kUnavailable);
  CHECK(text.error().message == kIndex + ": was replaced while it was opened");
  CHECK(scene.read().error().message.find("a link out of the checkpoint's folder") !=
        std::string::npos);
}

TEST_CASE("a file that is replaced by another while it is opened is looked at again") {
  Scene scene;
  scene.before_opening([&] {
    REQUIRE(scene.files.remove_file(kIndex).has_value());
    scene.files.put_file(kIndex, R"({"a":1})");
  });
  CHECK(scene.read().error().code == ErrorCode::kUnavailable);
  CHECK(scene.read().value() == R"({"a":1})");
}

TEST_CASE("a link whose goal was allowed is not followed to where it leads a moment later") {
  Scene scene;
  scene.files.put_file(kFolder + "/data/index.json", "[]");
  REQUIRE(scene.files.remove_file(kIndex).has_value());
  REQUIRE(scene.files.symbolic_link("data/index.json", kIndex).has_value());
  CHECK(scene.read().value() == "[]");
  scene.before_opening([&] {
    REQUIRE(scene.files.remove_file(kIndex).has_value());
    REQUIRE(scene.files.symbolic_link("/etc/secret", kIndex).has_value());
  });
  CHECK(scene.read().value() == "[]");
  CHECK(scene.acted);
  CHECK_FALSE(scene.read().has_value());
}

TEST_CASE("a file that a link leads to is opened by the path of its folder, which may be guarded") {
  Scene scene;
  scene.files.put_file(kFolder + "/data/index.json", "[]");
  REQUIRE(scene.files.remove_file(kIndex).has_value());
  REQUIRE(scene.files.symbolic_link("data/index.json", kIndex).has_value());
  REQUIRE(scene.files.symbolic_link("/run", "/mount").has_value());
  std::vector<std::string> opened;
  scene.files.on_call([&](const test::Call& call) {
    if (call.operation == "open_readable") opened.push_back(call.path);
  });
  const Folder folder{"/mount/checkpoint-5", {}};
  CHECK(read_inside(scene.files, folder, "index.json", 100).value() == "[]");
  CHECK(opened == std::vector<std::string>{"/mount/checkpoint-5/data/index.json"});
}
