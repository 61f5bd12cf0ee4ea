#include "agent/http/checkpoint_place.h"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "store/base/file_system.h"
#include "tests/unit/support/temporary_directory.h"

using namespace evalcar;
using namespace evalcar::http;

namespace {

/// Two output directories and a merged folder, below one root.
struct Disk {
  test::TemporaryDirectory folder;
  RealFileSystem files;
  std::string root = folder / "runs";
  std::string run = root + "/a";

  Disk() {
    for (const std::string& dir :
         {run + "/checkpoint-5", run + "/_evalcar/merged/5/regular", run + "/.store/x",
          run + "/.store/checkpoint-6", root + "/b/checkpoint-7", folder / "secret/checkpoint-1"}) {
      std::filesystem::create_directories(dir);
    }
    link(run + "/checkpoint-5", run + "/newest");
    link(run + "/.store/x", run + "/checkpoint-8");
    link(run + "/.store/checkpoint-6", run + "/checkpoint-6");
    link(folder / "secret/checkpoint-1", run + "/checkpoint-1");
    std::filesystem::create_directory_symlink(run, folder / "runs/same");
  }
  static void link(const std::string& target, const std::string& place) {
    std::filesystem::create_directory_symlink(target, place);
  }
  Result<std::string> find(const std::string& text, const std::vector<std::string>& dirs) const {
    return CheckpointPlaces(Places(files, {root}), dirs, "checkpoint-{step}").find(text);
  }
  std::string refusal(const std::string& text, const std::vector<std::string>& dirs) const {
    const auto found = find(text, dirs);
    REQUIRE_FALSE(found.has_value());
    CHECK(found.error().code == ErrorCode::kInvalidArgument);
    return found.error().message;
  }
};

}  // namespace

TEST_CASE("a checkpoint is one of an output directory, by the name that the agent knows") {
  const Disk disk;
  const std::vector<std::string> dirs = {disk.root + "/same", disk.root + "/not there yet"};
  const auto is = [&](const char* text, const char* place) {
    const auto found = disk.find(disk.root + text, dirs);
    REQUIRE(found.has_value());
    CHECK(*found == disk.run + place);
  };
  is("/a/checkpoint-5", "/checkpoint-5");
  is("/same/checkpoint-5/", "/checkpoint-5");
  is("/a/newest", "/checkpoint-5");
  is("/a/checkpoint-8", "/checkpoint-8");  // leads to what is no checkpoint by its name
  is("/a/checkpoint-6", "/checkpoint-6");  // leads to what is in no output directory

  CHECK(disk.refusal(disk.root + "/b/checkpoint-7", dirs) ==
        disk.root +
            "/b/checkpoint-7: does not lie in an output directory of this agent "
            "(watch.output_dir); `evalcar serve` evaluates any");
  CHECK(disk.refusal(disk.run + "/_evalcar/merged/5/regular", dirs) ==
        disk.run +
            "/_evalcar/merged/5/regular: no checkpoint by its name: watch.pattern is "
            "checkpoint-{step}");
  CHECK(disk.refusal(disk.run, dirs).find("no checkpoint by its name") != std::string::npos);
  CHECK(disk.find(disk.run + "/checkpoint-1", dirs).error().code == ErrorCode::kUnsupported);
}

TEST_CASE("without output directories every folder's checkpoints count, by their names") {
  const Disk disk;
  CHECK(disk.find(disk.root + "/b/checkpoint-7", {}).value() == disk.root + "/b/checkpoint-7");
  CHECK(disk.find(disk.run + "/newest", {}).value() == disk.run + "/checkpoint-5");
  CHECK(disk.find(disk.run + "/checkpoint-8", {}).value() == disk.run + "/checkpoint-8");
  CHECK(disk.refusal(disk.root + "/b", {}).find("no checkpoint by its name") != std::string::npos);
}

TEST_CASE("one that is gone is judged by its place alone") {
  const Disk disk;
  const CheckpointPlaces places(Places(disk.files, {disk.root}), {disk.run}, "checkpoint-{step}");
  CHECK(places.find_gone(disk.run + "/checkpoint-99").value() == disk.run + "/checkpoint-99");
  CHECK_FALSE(places.find_gone(disk.run + "/other").has_value());
  CHECK_FALSE(places.find_gone(disk.root + "/b/checkpoint-99").has_value());
  CHECK_FALSE(places.find_gone(disk.run + "/checkpoint-5").has_value());
}
