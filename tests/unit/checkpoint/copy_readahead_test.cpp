// What is asked of the disk before the kernel copies it: all of it, once, in order, in time, and
// nothing else.
#include "store/checkpoint/copy_readahead.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/checkpoint/merge.h"
#include "tests/unit/checkpoint/support.h"
#include "tests/unit/support/forwarding_file_system.h"
#include "tests/unit/support/temporary_directory.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kExt4 = 0xEF53;
constexpr std::uint64_t kBtrfs = 0x9123683E;

struct Hint {
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  bool operator==(const Hint&) const = default;
};
using Hints = std::vector<Hint>;

/// Hints that follow each other, as one.
Hints joined(const Hints& hints) {
  Hints out;
  for (const Hint& hint : hints) {
    if (!out.empty() && out.back().file == hint.file &&
        out.back().offset + out.back().size == hint.offset) {
      out.back().size += hint.size;
    } else {
      out.push_back(hint);
    }
  }
  return out;
}

std::uint64_t bytes_of(const Hints& hints) {
  std::uint64_t bytes = 0;
  for (const Hint& hint : hints) bytes += hint.size;
  return bytes;
}

class NotedFile final : public ReadableFile {
 public:
  NotedFile(std::string name, Hints& hints) : name_(std::move(name)), hints_(hints) {}
  NotedFile(std::string name, Hints& hints, std::unique_ptr<ReadableFile> below)
      : name_(std::move(name)), hints_(hints), below_(std::move(below)) {}
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    return below_->read_at(offset, out);
  }
  Result<FileInfo> info() const override { return below_->info(); }
  int descriptor() const override { return below_->descriptor(); }
  void will_read(std::uint64_t offset, std::uint64_t size) const override {
    hints_.push_back({name_, offset, size});
  }

 private:
  std::string name_;
  Hints& hints_;
  std::unique_ptr<ReadableFile> below_;
};

/// The real one, that says of itself what type it is, and notes what is asked of it.
class NotingFileSystem final : public test::ForwardingFileSystem {
 public:
  NotingFileSystem(FileSystem& below, std::uint64_t type)
      : ForwardingFileSystem(below), type_(type) {}
  Result<std::unique_ptr<ReadableFile>> open_readable(const std::string& path) const override {
    EVALCAR_ASSIGN_OR_RETURN(auto file, below().open_readable(path));
    return std::unique_ptr<ReadableFile>(
        std::make_unique<NotedFile>(path.substr(path.rfind('/') + 1), hints, std::move(file)));
  }
  Result<std::uint64_t> file_system_type(const std::string&) const override { return type_; }

  mutable Hints hints;

 private:
  std::uint64_t type_;
};

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("what is copied is asked for once, in its order, before its turn and not long before") {
  Hints hints;
  const NotedFile first("a", hints), second("b", hints);
  CopyReadahead readahead(
      {{0, 100, 20 * kMiB}, {1, 7, 50 * kMiB}, {0, 90 * kMiB, 3}},
      [&](std::size_t file) -> const ReadableFile& { return file == 0 ? first : second; });
  readahead.before_copying(kMiB);
  CHECK(joined(hints) == Hints{{"a", 100, 20 * kMiB}, {"b", 7, 13 * kMiB}});
  readahead.before_copying(2 * kMiB);
  CHECK(joined(hints) == Hints{{"a", 100, 20 * kMiB}, {"b", 7, 15 * kMiB}});
  readahead.before_copying(17 * kMiB);
  readahead.before_copying(50 * kMiB);
  readahead.before_copying(3);
  CHECK(joined(hints) == Hints{{"a", 100, 20 * kMiB}, {"b", 7, 50 * kMiB}, {"a", 90 * kMiB, 3}});
  readahead.before_copying(kMiB);
  CHECK(bytes_of(hints) == 70 * kMiB + 3);
}

TEST_CASE("a merge asks ahead for the bytes that the kernel copies, where it reads them itself") {
  const test::TemporaryDirectory folder;
  RealFileSystem real;
  std::filesystem::create_directory(folder / "checkpoint-5");
  const std::string header =
      R"({"big":{"dtype":"F32","shape":[1000,300],"data_offsets":[0,1200000]},)"
      R"("lm_head.weight":{"dtype":"F32","shape":[10],"data_offsets":[1200000,1200040]},)"
      R"("model.embed_tokens.weight":{"dtype":"F32","shape":[10],"data_offsets":[1200040,1200080]},)"
      R"("tail":{"dtype":"U8","shape":[5],"data_offsets":[1200080,1200085]}})";
  const std::string bytes = safetensors_bytes(header, std::string(1200085, 'x'));
  write_file(folder / "checkpoint-5/model.safetensors", bytes);
  write_file(folder / "checkpoint-5/config.json", R"({"model_type":"llama"})");
  const std::uint64_t data = bytes.size() - 1200085;

  const auto hints_on = [&](std::uint64_t type) {
    NotingFileSystem files(real, type);
    MergeRequest request;
    request.plans = {make_plan(files, folder / "checkpoint-5", WeightsKind::kRegular).value()};
    request.source_dirs = {folder / "checkpoint-5"};
    request.output_dir = folder / ("merged-" + std::to_string(type));
    files.hints.clear();
    REQUIRE(merge(files, request).has_value());
    return files.hints;
  };
  // The head and the embedding are read, to be compared.
  const Hints asked = hints_on(kExt4);
  CHECK(std::ranges::count(asked, Hint{"model.safetensors", data, 1200000}) == 1);
  CHECK(std::ranges::count(asked, Hint{"model.safetensors", data + 1200080, 5}) == 1);
  CHECK(bytes_of(asked) <= 1200085);
  const Hints shared = hints_on(kBtrfs);
  CHECK(std::ranges::count(shared, Hint{"model.safetensors", data, 1200000}) == 0);
}
