#include "evaluator/tasks/data_location.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::tasks;
using Catch::Matchers::ContainsSubstring;
using Paths = std::vector<std::string>;

namespace {

Definition task_of(std::string set, std::string config, std::string split) {
  Definition definition;
  definition.file.data_set = std::move(set);
  definition.file.config = std::move(config);
  definition.file.split = std::move(split);
  return definition;
}

struct Disk {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
};

}  // namespace

TEST_CASE("patterns match within a component and double stars across them") {
  CHECK(matches_pattern("data/val-*", "data/val-00000-of-00001.parquet"));
  CHECK_FALSE(matches_pattern("data/*", "data/a/b"));
  CHECK(matches_pattern("**/*.parquet", "a/b/c.parquet"));
  CHECK(matches_pattern("**", "a/b"));
  CHECK(matches_pattern("v[a-c]l-?.x", "vbl-1.x"));
  CHECK_FALSE(matches_pattern("************a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"));
}

TEST_CASE("the front matter of the read-me names the files of a configuration's split") {
  Disk disk;
  disk.files.put_file(
      "/d/o/n/README.md",
      "---\nconfigs:\n- config_name: A\n  data_files:\n  - split: val\n    path: A/val-*\n"
      "- config_name: B\n  data_files:\n  - split: val\n    path: [B/x.parquet, "
      "B/y.parquet]\n---\n");
  for (const char* path :
       {"A/val-00000-of-00001.parquet", "B/x.parquet", "B/y.parquet", "A/test-0.parquet"}) {
    disk.files.put_file(std::string("/d/o/n/") + path, "x");
  }

  CHECK(find_data_files(disk.files, task_of("o/n", "A", "val"), "/d").value() ==
        Paths{"/d/o/n/A/val-00000-of-00001.parquet"});
  CHECK(find_data_files(disk.files, task_of("o/n", "B", "val"), "/d").value() ==
        Paths{"/d/o/n/B/x.parquet", "/d/o/n/B/y.parquet"});
  const auto unknown = find_data_files(disk.files, task_of("o/n", "C", "val"), "/d");
  REQUIRE_FALSE(unknown.has_value());
  CHECK_THAT(unknown.error().message, ContainsSubstring("there are A, B"));
}

TEST_CASE("a read-me that is not YAML or uses anchors is an error and no crash") {
  Disk disk;
  disk.files.put_file("/d/o/n/val.parquet", "x");

  disk.files.put_file("/d/o/n/README.md", "---\nconfigs: [\n---\n");
  CHECK_FALSE(find_data_files(disk.files, task_of("o/n", "", "val"), "/d").has_value());
  disk.files.put_file("/d/o/n/README.md", "---\na: &x [1]\nconfigs: *x\n---\n");
  CHECK_FALSE(find_data_files(disk.files, task_of("o/n", "", "val"), "/d").has_value());
  disk.files.put_file("/d/o/n/README.md", "no front matter");
  CHECK(find_data_files(disk.files, task_of("o/n", "", "val"), "/d").has_value());
}

TEST_CASE("without a read-me the usual names are tried") {
  Disk disk;
  disk.files.put_file("/d/o/n/data/val-00000-of-00002.parquet", "x");
  disk.files.put_file("/d/o/n/data/val-00001-of-00002.parquet", "x");

  const auto found = find_data_files(disk.files, task_of("o/n", "", "val"), "/d");

  REQUIRE(found.has_value());
  CHECK(found->size() == 2);
}

TEST_CASE("a shard that is missing is named") {
  Disk disk;
  disk.files.put_file("/d/o/n/val-00000-of-00003.parquet", "x");
  disk.files.put_file("/d/o/n/val-00002-of-00003.parquet", "x");

  const auto found = find_data_files(disk.files, task_of("o/n", "", "val"), "/d");

  REQUIRE_FALSE(found.has_value());
  CHECK_THAT(found.error().message,
             ContainsSubstring("2 of 3 files are there, number 1 is missing"));
}

TEST_CASE("shards of two sizes of one split are refused and both sizes named") {
  for (const char* stale : {"-00000-of-00001", "-00005-of-00006"}) {
    Disk disk;
    for (const char* shard : {"-00000-of-00002", "-00001-of-00002"})
      disk.files.put_file(std::string("/d/o/n/data/val") + shard + ".parquet", "x");
    REQUIRE(find_data_files(disk.files, task_of("o/n", "", "val"), "/d").has_value());
    disk.files.put_file(std::string("/d/o/n/data/val") + stale + ".parquet", "x");

    const auto found = find_data_files(disk.files, task_of("o/n", "", "val"), "/d");

    REQUIRE_FALSE(found.has_value());
    CHECK(found.error().code == ErrorCode::kCorruption);
    CHECK_THAT(found.error().message, ContainsSubstring("/d/o/n/data/val-*") &&
                                          ContainsSubstring("files of 2") &&
                                          ContainsSubstring(std::string("files of ") + stale[14]));
  }
}

TEST_CASE("the hub's cache is read at the revision that main names") {
  Disk disk;
  disk.files.put_file("/hub/datasets--o--n/refs/main", "abc\n");
  disk.files.put_file("/hub/datasets--o--n/snapshots/abc/val.parquet", "x");
  disk.files.put_file("/hub/datasets--o--n/snapshots/zzz/val.parquet", "x");

  CHECK(find_data_files(disk.files, task_of("o/n", "", "val"), "/hub").value() ==
        Paths{"/hub/datasets--o--n/snapshots/abc/val.parquet"});
}

TEST_CASE("the two organisations of lmms-eval's data are synonyms") {
  Disk disk;
  disk.files.put_file("/d/lmms-lab-encoder/X/val.parquet", "x");

  CHECK(find_data_files(disk.files, task_of("lmms-lab/X", "", "val"), "/d").has_value());
}

TEST_CASE("a data set that is not there prints the command that fetches it") {
  Disk disk;
  disk.files.put_directory("/d");

  const auto found = find_data_files(disk.files, task_of("o/n", "", "val"), "/d");

  REQUIRE_FALSE(found.has_value());
  CHECK(found.error().code == ErrorCode::kNotFound);
  CHECK_THAT(found.error().message,
             ContainsSubstring("hf download --repo-type dataset o/n --local-dir /d/o/n"));
}
