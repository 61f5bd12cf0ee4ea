// Which tensors are copied without being read, and that a file that was merged so, or half so, is
// the one that reading and writing gives.
#include "store/checkpoint/merge_copy.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <random>

#include "store/checkpoint/merge.h"
#include "store/checkpoint/merge_output.h"
#include "store/checkpoint/safetensors.h"
#include "tests/unit/checkpoint/support.h"
#include "tests/unit/support/counting_file_system.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/forwarding_file_system.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

constexpr std::string_view kConfig = R"({"model_type":"llama"})";

/// What a CopyingFileSystem was asked for, and what it does.
struct Copying {
  std::uint64_t at_most = UINT64_MAX;  ///< bytes of one call
  std::uint64_t in_all = UINT64_MAX;   ///< bytes until it gives up
  bool fails = false;                  ///< at the end of `in_all`, with an error
  std::uint64_t copied = 0;
  std::size_t written_back = 0;
};

/// A file system that can copy between files.
class CopyingFileSystem final : public test::ForwardingFileSystem {
 public:
  CopyingFileSystem(FileSystem& below, Copying& copying)
      : ForwardingFileSystem(below), copying_(copying) {}

  Result<std::unique_ptr<WritableFile>> create(const std::string& path,
                                               std::uint32_t mode) override {
    EVALCAR_ASSIGN_OR_RETURN(auto file, below().create(path, mode));
    return std::unique_ptr<WritableFile>(std::make_unique<File>(std::move(file), copying_));
  }

 private:
  class File final : public WritableFile {
   public:
    File(std::unique_ptr<WritableFile> below, Copying& copying)
        : below_(std::move(below)), copying_(copying) {}
    using WritableFile::append;
    Status append(std::span<const std::byte> bytes) override { return below_->append(bytes); }
    Result<std::uint64_t> append_copy_of(const ReadableFile& source, std::uint64_t offset,
                                         std::uint64_t size) override {
      const std::uint64_t left = copying_.in_all - copying_.copied;
      if (left == 0 && copying_.fails) return make_error(ErrorCode::kIo, "copy: broken");
      std::vector<std::byte> bytes(
          static_cast<std::size_t>(std::min({size, copying_.at_most, left})));
      EVALCAR_ASSIGN_OR_RETURN(const std::size_t n, source.read_at(offset, bytes));
      EVALCAR_RETURN_IF_ERROR(below_->append(std::span(bytes).first(n)));
      copying_.copied += n;
      return std::uint64_t{n};
    }
    void start_writing_back() override { ++copying_.written_back; }
    Status sync() override { return below_->sync(); }
    Status close() override { return below_->close(); }

   private:
    std::unique_ptr<WritableFile> below_;
    Copying& copying_;
  };

  Copying& copying_;
};

std::string random_bytes(std::size_t size) {
  std::mt19937 random(7);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

/// /run/checkpoint-5: "big" float32 [1000, 300], "head" and "embedding" as ties are named, "tail"
/// uint8 [5], behind a header of a length that is no multiple of a block.
struct Source {
  Source() {
    const std::string header =
        R"({"big":{"dtype":"F32","shape":[1000,300],"data_offsets":[0,1200000]},)"
        R"("lm_head.weight":{"dtype":"F32","shape":[10],"data_offsets":[1200000,1200040]},)"
        R"("model.embed_tokens.weight":{"dtype":"F32","shape":[10],"data_offsets":[1200040,1200080]},)"
        R"("tail":{"dtype":"U8","shape":[5],"data_offsets":[1200080,1200085]}})";
    memory.put_file("/run/checkpoint-5/model.safetensors",
                    safetensors_bytes(header, random_bytes(1200085)));
    memory.put_file("/run/checkpoint-5/config.json", std::string(kConfig));
  }
  Result<MergeReport> merge_to(const std::string& output, std::optional<DType> dtype = {}) {
    CopyingFileSystem files(memory, copying);
    MergeRequest request;
    request.plans = {make_plan(memory, "/run/checkpoint-5", WeightsKind::kRegular).value()};
    request.source_dirs = {"/run/checkpoint-5"};
    request.output_dir = output;
    request.dtype = dtype;
    return merge(files, request);
  }

  test::FakeClock clock;
  test::MemoryFileSystem memory{clock};
  Copying copying;
};

TensorPlan tensor_of(std::vector<std::int64_t> shape, std::vector<Piece> pieces) {
  return {.name = "w",
          .dtype = DType::kFloat32,
          .shape = std::move(shape),
          .pieces = std::move(pieces)};
}

std::string text_of(const std::vector<CopyRange>& ranges) {
  std::string text;
  for (const CopyRange& range : ranges) {
    text += std::to_string(range.file) + ':' + std::to_string(range.offset) + '+' +
            std::to_string(range.bytes) + ' ';
  }
  return text;
}

}  // namespace

TEST_CASE("shards of the first dimension are copied one after the other") {
  const Plan plan;
  const auto copied = [&](std::vector<std::int64_t> shape, std::vector<Piece> pieces) {
    return text_of(ranges_to_copy(plan, tensor_of(std::move(shape), std::move(pieces))));
  };

  CHECK(copied({3, 4}, {{0, 100, {0, 0}, {3, 4}, {4, 1}}}) == "0:100+48 ");
  CHECK(copied({3, 4}, {{0, 100, {0, 0}, {2, 4}, {4, 1}}, {1, 60, {2, 0}, {1, 4}, {4, 1}}}) ==
        "0:100+32 1:60+16 ");
  CHECK(copied({}, {{2, 8, {}, {}, {}}}) == "2:8+4 ");
  // A dimension of one element has any stride, and leaves the next to be cut.
  CHECK(copied({1, 4}, {{0, 0, {0, 0}, {1, 2}, {99, 1}}, {1, 0, {0, 2}, {1, 2}, {99, 1}}}) ==
        "0:0+8 1:0+8 ");
}

TEST_CASE("what does not lie in the tensor's order, or is not its bytes, is not copied") {
  Plan plan;
  plan.files.resize(2);
  const auto is_copied = [&](const TensorPlan& tensor) {
    return !ranges_to_copy(plan, tensor).empty();
  };
  const TensorPlan whole = tensor_of({4, 4}, {{0, 0, {0, 0}, {4, 4}, {4, 1}}});
  REQUIRE(is_copied(whole));

  CHECK_FALSE(is_copied(tensor_of({4, 4}, {{0, 0, {0, 0}, {4, 4}, {1, 4}}})));  // transposed
  CHECK_FALSE(is_copied(tensor_of({4, 4}, {{0, 0, {0, 0}, {4, 4}, {8, 1}}})));  // of a wider one
  CHECK_FALSE(is_copied(tensor_of(
      {4, 4}, {{0, 0, {0, 0}, {4, 2}, {2, 1}}, {1, 0, {0, 2}, {4, 2}, {2, 1}}})));  // columns
  CHECK_FALSE(is_copied(tensor_of({0, 4}, {})));
  TensorPlan other = whole;
  other.stored_dtype = DType::kFloat16;
  CHECK_FALSE(is_copied(other));
  plan.records.push_back({1, 0, 64, 0});
  CHECK(is_copied(whole));
  plan.records.push_back({0, 0, 64, 0});
  CHECK_FALSE(is_copied(whole));  // its CRC-32 has to be checked
}

TEST_CASE("a header is lengthened until both files have the data at the same place of a block") {
  const std::vector<SafetensorsTensor> tensors = {{"w", DType::kFloat32, {4}, 0, 16}};
  const std::string header = make_safetensors_header(tensors, {}).value();
  for (const std::uint64_t offset : {8U, 4096U, 5000U, 4088U, 123456U}) {
    INFO(offset);
    std::string aligned = header;

    align_header(aligned, 16, offset);

    CHECK((aligned.size() + 16) % kSharedBlockBytes == offset % kSharedBlockBytes);
    CHECK(aligned.size() < header.size() + kSharedBlockBytes);
    const auto read = read_safetensors(MemoryFile(aligned + std::string(16, 'x')), "w");
    REQUIRE(read.has_value());
    CHECK(read->data_offset == aligned.size());
  }
  std::string odd = header;
  align_header(odd, 16, 4099);
  CHECK(odd == header);
}

TEST_CASE("a merge is the same file whether its bytes are copied, read, or the one and the other") {
  Source source;
  source.copying.in_all = 0;
  REQUIRE(source.merge_to("/out/read").has_value());
  const std::string wanted = *source.memory.content("/out/read/model.safetensors");
  REQUIRE(source.copying.copied == 0);

  const auto in_all = GENERATE(as<std::uint64_t>{}, UINT64_MAX, 1, 4000, 70'000, 1'200'000);
  source.copying = {.at_most = GENERATE(as<std::uint64_t>{}, UINT64_MAX, 60'001), .in_all = in_all};
  REQUIRE(source.merge_to("/out/copied").has_value());

  CHECK(*source.memory.content("/out/copied/model.safetensors") == wanted);
  // All but the two that are compared.
  CHECK(source.copying.copied == std::min<std::uint64_t>(in_all, 1'200'005));
}

TEST_CASE("what is copied is not read by the merge") {
  Source source;
  test::CountingFileSystem counting(source.memory);
  CopyingFileSystem files(counting, source.copying);
  MergeRequest request;
  request.plans = {make_plan(source.memory, "/run/checkpoint-5", WeightsKind::kRegular).value()};
  request.source_dirs = {"/run/checkpoint-5"};
  request.output_dir = "/out/merged";

  REQUIRE(merge(files, request).has_value());

  // The copy of this test reads, too. The configuration is copied, and asked what it ties.
  CHECK(counting.bytes_read() == 1'200'085 + 2 * kConfig.size());
}

TEST_CASE("a cast and an average are not copied") {
  Source source;
  REQUIRE(source.merge_to("/out/cast", DType::kBFloat16).has_value());
  CHECK(source.copying.copied == 5);  // the bytes of "tail" are kept

  source.copying.copied = 0;
  const Plan plan = make_plan(source.memory, "/run/checkpoint-5", WeightsKind::kRegular).value();
  CopyingFileSystem files(source.memory, source.copying);
  MergeRequest request;
  request.plans = {plan, plan};
  request.source_dirs = {"/run/checkpoint-5", "/run/checkpoint-5"};
  request.output_dir = "/out/average";
  REQUIRE(merge(files, request).has_value());
  CHECK(source.copying.copied == 0);
}

TEST_CASE("a head that differs from the embedding is noticed though all else is copied") {
  Source source;

  const auto report = source.merge_to("/out/merged");

  REQUIRE(report.has_value());
  CHECK(report->untied);
}

TEST_CASE("a copy that breaks leaves nothing") {
  Source source;
  source.copying = {.in_all = 100'000, .fails = true};

  const auto report = source.merge_to("/out/merged");

  REQUIRE_FALSE(report.has_value());
  CHECK(report.error().code == ErrorCode::kIo);
  CHECK(source.memory.tree("/out").empty());
}

TEST_CASE("a source that becomes shorter while it is copied is told, and nothing is published") {
  Source source;
  source.copying.at_most = 4096;
  bool cut = false;
  source.memory.on_call([&](const test::Call& call) {
    if (cut || call.operation != "append" || source.copying.copied < 50'000) return;
    cut = true;
    REQUIRE(source.memory.truncate("/run/checkpoint-5/model.safetensors", 100'000).has_value());
  });

  const auto report = source.merge_to("/out/merged");

  REQUIRE_FALSE(report.has_value());
  CHECK(cut);
  CHECK(source.memory.tree("/out").empty());
}

TEST_CASE("on this machine's own file system a merge copies, too") {
  const ScratchFolder scratch;
  Source source;
  const std::string content = *source.memory.content("/run/checkpoint-5/model.safetensors");
  scratch.write("run/checkpoint-5/model.safetensors", content);
  scratch.write("run/checkpoint-5/config.json", "{}");
  RealFileSystem files;
  MergeRequest request;
  request.plans = {make_plan(files, scratch.at("run/checkpoint-5"), WeightsKind::kRegular).value()};
  request.source_dirs = {scratch.at("run/checkpoint-5")};
  request.output_dir = scratch.at("out");
  REQUIRE(source.merge_to("/out/merged").has_value());

  REQUIRE(merge(files, request).has_value());

  CHECK(scratch.read("out/model.safetensors") ==
        *source.memory.content("/out/merged/model.safetensors"));
}

TEST_CASE("what is written is on its way to the disk before its end, and whole after it") {
  test::FakeClock clock;
  test::MemoryFileSystem memory{clock};
  memory.put_directory("/out");
  Copying copying;
  CopyingFileSystem files(memory, copying);
  const std::string block = random_bytes(std::size_t{1} << 20U);
  MergeOutput out(files.create("/out/file", 0644).value());

  for (int i = 0; i < 40; ++i) REQUIRE(out.append(std::string_view(block)).has_value());
  REQUIRE(out.finish().has_value());

  // Twice 16 MiB; the second may come while the first is being told, or be left to the sync.
  CHECK(copying.written_back <= 2);
  CHECK(memory.content("/out/file")->size() == 40 * block.size());
  memory.power_cut(test::UnsyncedNames::kKept);
  CHECK(memory.content("/out/file")->size() == 40 * block.size());
}
