#include "agent/watch/inotify.h"

#include <poll.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

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

TEST_CASE("a folder is watched under its name, wherever a link leads by now") {
  const testing::TemporaryFolder folder;
  RealFileSystem files;
  Inotify inotify(files);
  folder.write("first/run/file", "1");
  folder.write("second/run/file", "2");
  const auto lead_to = [&](const char* target) {
    (void)files.remove_file(folder / "link");
    REQUIRE(files.symbolic_link(folder / target, folder / "link").has_value());
  };
  const std::string of_link = GENERATE("link", "link/run");  // itself, or above it
  const std::string name = folder / of_link;
  const std::string below = of_link == "link" ? "/" : "/run/";
  lead_to("first");
  REQUIRE(inotify.watch(name));

  lead_to("second");
  CHECK(inotify.watch(name));

  folder.write("first" + below + "late", "3");
  CHECK(inotify.take().folders.empty());
  folder.write("second" + below + "new", "4");
  CHECK(inotify.take().folders == std::set<std::string>{name});
  CHECK(inotify.watch(name));
  CHECK(inotify.take().folders.empty());
}

TEST_CASE("a folder to which no name leads any more is not watched") {
  const testing::TemporaryFolder folder;
  RealFileSystem files;
  Inotify inotify(files);
  folder.write("first/file", "1");
  REQUIRE(files.symbolic_link(folder / "first", folder / "link").has_value());
  REQUIRE(inotify.watch(folder / "link"));
  REQUIRE(files.remove_file(folder / "link").has_value());

  CHECK_FALSE(inotify.watch(folder / "link"));

  folder.write("first/late", "2");
  CHECK(inotify.take().folders.empty());
}

TEST_CASE("a folder that does not exist cannot be watched") {
  RealFileSystem files;
  Inotify inotify(files);
  CHECK_FALSE(inotify.watch("/no/such/folder"));
}
