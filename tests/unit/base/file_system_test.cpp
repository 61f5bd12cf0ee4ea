// The same promises, asked of the machine's file system and of the one in memory: a test that
// passes on the fake means something on the disk.
#include "store/base/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;

namespace {

struct OnDisk {
  RealFileSystem real;
  FileSystem& files = real;
  std::string root;
  OnDisk() {
    std::string pattern = (std::filesystem::temp_directory_path() / "evalcar-base-XXXXXX").string();
    root = ::mkdtemp(pattern.data());
  }
  ~OnDisk() { std::filesystem::remove_all(root); }
};

struct InMemory {
  test::FakeClock clock;
  test::MemoryFileSystem memory{clock};
  FileSystem& files = memory;
  std::string root = "/work";
  InMemory() { memory.put_directory(root); }
};

void write(FileSystem& files, const std::string& path, std::string_view text) {
  auto file = files.create(path);
  REQUIRE(file.has_value());
  REQUIRE((*file)->append(text).has_value());
  REQUIRE((*file)->sync().has_value());
  REQUIRE((*file)->close().has_value());
}

std::string text_of(const FileSystem& files, const std::string& path) {
  const auto text = read_file(files, path, 1 << 20);
  REQUIRE(text.has_value());
  return *text;
}

}  // namespace

TEMPLATE_TEST_CASE("a file that was written is read back, also past its end", "", OnDisk,
                   InMemory) {
  TestType place;
  const std::string path = join_path(place.root, "a");
  write(place.files, path, "hello");

  CHECK(text_of(place.files, path) == "hello");
  const auto file = place.files.open_readable(path);
  REQUIRE(file.has_value());
  std::array<std::byte, 4> buffer{};
  CHECK((*file)->read_at(3, buffer).value() == 2);
  CHECK((*file)->read_at(9, buffer).value() == 0);
  const Status short_read = (*file)->read_exactly_at(3, buffer, path);
  REQUIRE_FALSE(short_read.has_value());
  CHECK(short_read.error().code == ErrorCode::kCorruption);
  CHECK(short_read.error().message.find("ends at byte 5") != std::string::npos);
}

TEMPLATE_TEST_CASE("create refuses a name that is taken, appending goes to the end", "", OnDisk,
                   InMemory) {
  TestType place;
  const std::string path = join_path(place.root, "a");
  write(place.files, path, "one");

  CHECK_FALSE(place.files.create(path).has_value());
  auto file = place.files.open_appendable(path);
  REQUIRE(file.has_value());
  REQUIRE((*file)->append("two").has_value());
  CHECK(text_of(place.files, path) == "onetwo");
}

TEMPLATE_TEST_CASE("a hard link shares the inode and outlives the first name", "", OnDisk,
                   InMemory) {
  TestType place;
  const std::string a = join_path(place.root, "a");
  const std::string b = join_path(place.root, "b");
  write(place.files, a, "data");

  REQUIRE(place.files.hard_link(a, b).has_value());
  const FileInfo first = place.files.info(a).value();
  const FileInfo second = place.files.info(b).value();
  CHECK(first.same_content_identity(second));
  CHECK(first.link_count == 2);
  REQUIRE(place.files.remove_file(a).has_value());
  CHECK(text_of(place.files, b) == "data");
  CHECK(place.files.info(b)->link_count == 1);
  CHECK_FALSE(place.files.hard_link(a, b).has_value());
}

TEMPLATE_TEST_CASE("a clone is a file of its own, or there is none", "", OnDisk, InMemory) {
  TestType place;
  if constexpr (std::is_same_v<TestType, InMemory>) place.memory.allow_clones();
  const std::string a = join_path(place.root, "a");
  const std::string b = join_path(place.root, "b");
  write(place.files, a, "data");

  const Status cloned = place.files.clone_file(a, b);

  if (!cloned.has_value()) {  // most file systems
    CHECK(cloned.error().code == ErrorCode::kUnsupported);
    CHECK_FALSE(place.files.info(b).has_value());
    return;
  }
  CHECK(text_of(place.files, b) == "data");
  CHECK(place.files.info(a)->inode != place.files.info(b)->inode);
  CHECK(place.files.info(a)->link_count == 1);
  CHECK_FALSE(place.files.clone_file(a, b).has_value());
  CHECK(text_of(place.files, b) == "data");
}

TEMPLATE_TEST_CASE("a clone of what is not there is no file", "", OnDisk, InMemory) {
  TestType place;
  const std::string b = join_path(place.root, "b");
  const Status cloned = place.files.clone_file(join_path(place.root, "none"), b);
  REQUIRE_FALSE(cloned.has_value());
  CHECK(cloned.error().code == ErrorCode::kNotFound);
  CHECK_FALSE(place.files.info(b).has_value());
}

TEMPLATE_TEST_CASE("an open file can be read after its name is gone", "", OnDisk, InMemory) {
  TestType place;
  const std::string path = join_path(place.root, "a");
  write(place.files, path, "data");
  const auto file = place.files.open_readable(path);
  REQUIRE(file.has_value());

  REQUIRE(place.files.remove_file(path).has_value());

  std::array<std::byte, 4> buffer{};
  CHECK((*file)->read_at(0, buffer).value() == 4);
}

TEMPLATE_TEST_CASE("links are told as links, followed where asked, and never listed as folders", "",
                   OnDisk, InMemory) {
  TestType place;
  const std::string folder = join_path(place.root, "folder");
  const std::string link = join_path(place.root, "link");
  REQUIRE(place.files.make_directory(folder).has_value());
  write(place.files, join_path(folder, "file"), "x");
  REQUIRE(place.files.symbolic_link("folder", link).has_value());

  CHECK(place.files.info(link)->type == FileType::kSymlink);
  CHECK(place.files.info_followed(link)->type == FileType::kDirectory);
  CHECK(place.files.read_link(link).value() == "folder");
  CHECK(text_of(place.files, join_path(link, "file")) == "x");
  CHECK(place.files.real_path(join_path(link, "file")).value() ==
        place.files.real_path(join_path(folder, "file")).value());
  const auto entries = place.files.list(place.root);
  REQUIRE(entries.has_value());
  REQUIRE(entries->size() == 2);
  CHECK(entries->at(0).name == "folder");
  CHECK(entries->at(1).type == FileType::kSymlink);
}

TEMPLATE_TEST_CASE("remove_tree does not follow links, and a missing path is success", "", OnDisk,
                   InMemory) {
  TestType place;
  const std::string kept = join_path(place.root, "kept");
  const std::string gone = join_path(place.root, "gone");
  REQUIRE(make_directories(place.files, kept).has_value());
  write(place.files, join_path(kept, "file"), "x");
  REQUIRE(make_directories(place.files, join_path(gone, "deep/er")).has_value());
  write(place.files, join_path(gone, "deep/er/file"), "x");
  REQUIRE(place.files.symbolic_link(kept, join_path(gone, "link")).has_value());

  REQUIRE(remove_tree(place.files, gone).has_value());

  CHECK(place.files.info(gone).error().code == ErrorCode::kNotFound);
  CHECK(text_of(place.files, join_path(kept, "file")) == "x");
  CHECK(remove_tree(place.files, gone).has_value());
}

TEMPLATE_TEST_CASE("an mtime can be put back", "", OnDisk, InMemory) {
  TestType place;
  const std::string folder = join_path(place.root, "folder");
  REQUIRE(place.files.make_directory(folder).has_value());

  REQUIRE(place.files.set_mtime(folder, 1'700'000'000'123'456'789).has_value());
  CHECK(place.files.info(folder)->mtime_ns == 1'700'000'000'123'456'789);
  write(place.files, join_path(folder, "new"), "x");
  CHECK(place.files.info(folder)->mtime_ns != 1'700'000'000'123'456'789);
}

TEMPLATE_TEST_CASE("folders and missing files are refused with the right kind of error", "", OnDisk,
                   InMemory) {
  TestType place;
  CHECK(place.files.open_readable(place.root).error().code == ErrorCode::kInvalidArgument);
  CHECK(place.files.open_readable(join_path(place.root, "no")).error().code ==
        ErrorCode::kNotFound);
  CHECK(place.files.list(join_path(place.root, "no")).error().code == ErrorCode::kNotFound);
  CHECK_FALSE(place.files.make_directory(place.root).has_value());
  CHECK(place.files.list(place.root, 0).has_value());
  write(place.files, join_path(place.root, "a"), "x");
  CHECK(place.files.list(place.root, 0).error().code == ErrorCode::kUnavailable);
  CHECK_FALSE(make_directories(place.files, join_path(place.root, "a/b")).has_value());
  CHECK_FALSE(place.files.remove_directory(join_path(place.root, "a")).has_value());
}

TEMPLATE_TEST_CASE("truncating cuts the tail", "", OnDisk, InMemory) {
  TestType place;
  const std::string path = join_path(place.root, "a");
  write(place.files, path, "whole line\ntorn");
  REQUIRE(place.files.truncate(path, 11).has_value());
  CHECK(text_of(place.files, path) == "whole line\n");
}

TEMPLATE_TEST_CASE("an atomic write replaces the whole content and leaves no other file", "",
                   OnDisk, InMemory) {
  TestType place;
  const std::string path = join_path(place.root, "status.json");
  REQUIRE(write_file_atomically(place.files, path, "old").has_value());
  REQUIRE(write_file_atomically(place.files, path, "new").has_value());

  CHECK(text_of(place.files, path) == "new");
  CHECK(place.files.list(place.root)->size() == 1);
}

TEMPLATE_TEST_CASE("a file above the limit is refused, not read", "", OnDisk, InMemory) {
  TestType place;
  const std::string path = join_path(place.root, "a");
  write(place.files, path, "12345");
  CHECK(read_file(place.files, path, 5).has_value());
  CHECK(read_file(place.files, path, 4).error().code == ErrorCode::kCorruption);
}

TEST_CASE("opening a FIFO does not block and is refused") {
  OnDisk place;
  const std::string path = join_path(place.root, "fifo");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(place.files.open_readable(path).error().code == ErrorCode::kInvalidArgument);
}

TEST_CASE("the real file system tells free space and its type") {
  OnDisk place;
  CHECK(place.files.free_bytes(place.root).value() > 0);
  CHECK(place.files.file_system_type(place.root).value() != 0);
}

TEST_CASE("paths are taken apart as in a shell") {
  CHECK(join_path("a", "b") == "a/b");
  CHECK(join_path("a/", "b") == "a/b");
  CHECK(join_path("", "b") == "b");
  CHECK(base_name("/x/checkpoint-5/") == "checkpoint-5");
  CHECK(base_name("/") == "/");
  CHECK(parent_path("/x/y") == "/x");
  CHECK(parent_path("/x") == "/");
  CHECK(parent_path("x") == ".");
  CHECK(parent_path("/x/y/") == "/x");
}

TEST_CASE("a file is lengthened by a part of another one, as far as that goes") {
  OnDisk place;
  const std::string source_path = join_path(place.root, "source");
  write(place.files, source_path, "0123456789");
  const auto source = place.files.open_readable(source_path).value();
  auto file = place.files.create(join_path(place.root, "target")).value();
  REQUIRE(file->append("head ").has_value());

  const auto copied = file->append_copy_of(*source, 2, 3);

  REQUIRE(copied.has_value());
  if (*copied == 0) SKIP("the kernel does not copy within this file system");
  REQUIRE(*copied == 3);
  CHECK(file->append_copy_of(*source, 8, 5).value() == 2);
  CHECK(file->append_copy_of(*source, 10, 5).value() == 0);
  file->start_writing_back();
  REQUIRE(file->append(" tail").has_value());
  REQUIRE(file->sync().has_value());
  CHECK(text_of(place.files, join_path(place.root, "target")) == "head 23489 tail");
}

TEST_CASE("where there is no way between two files nothing is copied, and nothing is wrong") {
  OnDisk disk;
  InMemory memory;
  write(memory.files, "/work/source", "0123456789");
  write(disk.files, join_path(disk.root, "source"), "0123456789");
  const auto elsewhere = memory.files.open_readable("/work/source").value();
  const auto here = disk.files.open_readable(join_path(disk.root, "source")).value();
  auto on_disk = disk.files.create(join_path(disk.root, "target")).value();
  auto in_memory = memory.files.create("/work/target").value();
  auto appended = disk.files.open_appendable(join_path(disk.root, "log")).value();

  CHECK(on_disk->append_copy_of(*elsewhere, 0, 10).value() == 0);
  CHECK(in_memory->append_copy_of(*here, 0, 10).value() == 0);
  CHECK(appended->append_copy_of(*here, 0, 10).value() == 0);  // EBADF: O_APPEND
  CHECK(on_disk->append_copy_of(*here, UINT64_MAX - 3, 10).value() == 0);
  CHECK(text_of(disk.files, join_path(disk.root, "target")).empty());
}
