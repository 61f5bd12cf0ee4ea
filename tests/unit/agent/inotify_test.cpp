#include "agent/watch/inotify.h"

#include <poll.h>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/agent/temporary_folder.h"

using namespace evalcar;
using namespace evalcar::watch;

TEST_CASE("a change in a watched folder gives a hint with the folder's name") {
  const testing::TemporaryFolder folder;
  RealFileSystem files;
  Inotify inotify(files);
  REQUIRE(inotify.watch(folder.path()));
  CHECK(inotify.take().folders.empty());

  folder.write("file", "content");

  pollfd waiting{inotify.descriptor(), POLLIN, 0};
  REQUIRE(::poll(&waiting, 1, 5000) == 1);
  CHECK(inotify.take().folders == std::set<std::string>{folder.path()});
}

TEST_CASE("a folder that was removed and made again is watched again") {
  const testing::TemporaryFolder folder;
  RealFileSystem files;
  Inotify inotify(files);
  folder.write("sub/file", "1");
  REQUIRE(inotify.watch(folder / "sub"));
  REQUIRE(remove_tree(files, folder / "sub").has_value());
  CHECK(inotify.take().folders == std::set<std::string>{folder / "sub"});

  folder.write("sub/file", "2");
  REQUIRE(inotify.watch(folder / "sub"));
  folder.write("sub/other", "3");

  CHECK(inotify.take().folders == std::set<std::string>{folder / "sub"});
}

TEST_CASE("a folder that does not exist cannot be watched") {
  RealFileSystem files;
  Inotify inotify(files);
  CHECK_FALSE(inotify.watch("/no/such/folder"));
}
