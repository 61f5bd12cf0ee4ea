#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "store/checkpoint/crc32.h"
#include "store/checkpoint/merge.h"
#include "store/checkpoint/plan.h"
#include "tests/unit/support/counting_file_system.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::checkpoint;

namespace {

constexpr std::uint64_t kBlock = std::uint64_t{1} << 20U;
constexpr std::uint64_t kRows = 5 * kBlock / 4;  // of one shard

/// A tensor "w" of float32 [2 · kRows] in two files, each one record of 5 MiB and 77 bytes of
/// padding; "small" [3] lies in a third record, and a fourth holds no tensor.
struct Scene {
  Scene() {
    std::mt19937 random(1);
    TensorPlan w{.name = "w", .dtype = DType::kFloat32, .shape = {2 * kRows}};
    for (const std::string path : {"/c/rank_0.pt", "/c/rank_1.pt"}) {
      std::string content(10 + 5 * kBlock + 77 + 12 + 50, '\0');
      for (char& c : content) c = static_cast<char>(random());
      memory.put_file(path, content);
      const std::size_t file = plan.files.size();
      plan.files.push_back({path, files.info(path).value()});
      record(content, file, 10, 5 * kBlock + 77);
      w.pieces.push_back({file, 10, {static_cast<std::int64_t>(file * kRows)}, {kRows}, {1}});
      if (file == 0) {
        record(content, file, 10 + 5 * kBlock + 77, 12);
        TensorPlan small{.name = "small", .dtype = DType::kFloat32, .shape = {3}};
        small.pieces = {{file, 10 + 5 * kBlock + 77, {0}, {3}, {1}}};
        plan.tensors.push_back(std::move(small));
      } else {
        record(content, file, content.size() - 50, 50);
      }
    }
    plan.tensors.push_back(std::move(w));
  }
  void record(const std::string& content, std::size_t file, std::uint64_t offset,
              std::uint64_t size) {
    const auto bytes = std::as_bytes(std::span(content).subspan(offset, size));
    plan.records.push_back({file, offset, size, crc32(bytes)});
  }
  PlanReader open() const { return PlanReader::open(files, plan).value(); }
  Status read_all(const PlanReader& reader, std::uint64_t box_bytes = kBlock / 2 + 4) const {
    std::vector<std::byte> buffer;
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      for (const Box& box : row_major_boxes(plan.tensors[i], box_bytes)) {
        buffer.resize(box.elements() * 4);
        EVALCAR_RETURN_IF_ERROR(reader.read_box(i, box, buffer));
      }
    }
    return {};
  }
  /// Loses a block of a file, leaving its time of change as it was.
  void damage(const std::string& path, std::uint64_t offset) {
    std::string content = *memory.content(path);
    content[offset] = static_cast<char>(content[offset] ^ 1);
    memory.put_file(path, content);
  }

  test::FakeClock clock;
  test::MemoryFileSystem memory{clock};
  test::CountingFileSystem files{memory};
  Plan plan;
};

}  // namespace

TEST_CASE("CRCs of neighbours combine to the CRC of both, wherever the cut is") {
  std::mt19937 random(2);
  std::string text(70000, '\0');
  for (char& c : text) c = static_cast<char>(random());
  const auto bytes = std::as_bytes(std::span(text));
  for (const std::size_t cut : {0, 1, 3, 64, 255, 256, 4096, 65536, 69999, 70000}) {
    INFO(cut);
    const std::uint32_t first = crc32(bytes.first(cut));
    const std::uint32_t second = crc32(bytes.subspan(cut));
    CHECK(combine_crc32(first, second, bytes.size() - cut) == crc32(bytes));
  }
}

TEST_CASE("what was read for the tensors is not read again for its checksums") {
  Scene scene;
  const PlanReader reader = scene.open();
  REQUIRE(scene.read_all(reader).has_value());

  CHECK(scene.files.bytes_read() == scene.plan.bytes());
  CHECK(reader.unverified_bytes() == 2 * 77);
  REQUIRE(reader.verify_checksums(2).has_value());

  CHECK(scene.files.bytes_read() == scene.plan.bytes() + 2 * 77);
  CHECK(reader.unverified_bytes() == 0);
}

TEST_CASE("a lost block is found wherever it lies in what was read, or in the padding behind it") {
  const std::uint64_t offset = GENERATE(as<std::uint64_t>{}, 10, 11 + kBlock / 2,
                                        10 + 5 * kBlock - 1, 10 + 5 * kBlock, 10 + 5 * kBlock + 76);
  Scene scene;
  scene.damage("/c/rank_1.pt", offset);
  const PlanReader reader = scene.open();
  REQUIRE(scene.read_all(reader).has_value());

  const Status verified = reader.verify_checksums(1);

  REQUIRE_FALSE(verified.has_value());
  CHECK(verified.error().code == ErrorCode::kCorruption);
  CHECK(verified.error().message.find("/c/rank_1.pt: the 5242957 bytes at 10") !=
        std::string::npos);
}

TEST_CASE(
    "reads in any order, in any cuts, twice or from several threads give the same checksums") {
  Scene scene;
  const PlanReader reader = scene.open();
  std::vector<std::pair<std::size_t, Box>> reads;
  for (const std::uint64_t bytes : {std::uint64_t{300'004}, std::uint64_t{1'000'000}}) {
    for (std::size_t i = 0; i < scene.plan.tensors.size(); ++i) {
      for (Box& box : row_major_boxes(scene.plan.tensors[i], bytes)) {
        reads.emplace_back(i, std::move(box));
      }
    }
  }
  std::shuffle(reads.begin(), reads.end(), std::mt19937(GENERATE(0U, 1U, 2U, 3U, 4U)));
  {
    std::atomic<std::size_t> next{0};
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        std::vector<std::byte> buffer;
        for (std::size_t i = next++; i < reads.size(); i = next++) {
          buffer.resize(reads[i].second.elements() * 4);
          if (!reader.read_box(reads[i].first, reads[i].second, buffer).has_value()) return;
        }
      });
    }
  }

  CHECK(reader.verify_checksums(2).has_value());
}

TEST_CASE("a record that no tensor lies in is not read") {
  Scene scene;
  scene.damage("/c/rank_1.pt", 10 + 5 * kBlock + 77 + 12 + 49);
  const PlanReader reader = scene.open();

  CHECK(reader.unverified_bytes() == 2 * (5 * kBlock + 77) + 12);
  CHECK(reader.verify_checksums(1).has_value());
}

TEST_CASE("verifying what was not read tells its bytes block by block, up to all of them") {
  Scene scene;
  const PlanReader reader = scene.open();
  const std::uint64_t all = reader.unverified_bytes();
  std::vector<std::uint64_t> told;

  REQUIRE(
      reader.verify_checksums(1, [&](std::uint64_t done) { told.push_back(done); }).has_value());

  CHECK(told.size() == 13);  // 6 blocks a shard, and the small one
  CHECK(std::is_sorted(told.begin(), told.end()));
  CHECK(told.front() == kBlock);
  CHECK(told.back() == all);
}

TEST_CASE("a stop ends the verifying of checksums after the blocks that are being read") {
  Scene scene;
  const int threads = GENERATE(1, 2);
  const PlanReader reader = scene.open();
  std::stop_source stop;
  scene.memory.on_call([&](const test::Call& call) {
    if (call.operation == "read_at" && scene.memory.count("read_at") >= 3) stop.request_stop();
  });
  scene.memory.reset_calls();

  const Status verified = reader.verify_checksums(threads, {}, stop.get_token());

  REQUIRE_FALSE(verified.has_value());
  CHECK(verified.error().code == ErrorCode::kCancelled);
  CHECK(scene.memory.count("read_at") <= 3 + static_cast<std::size_t>(threads));
}

TEST_CASE("lost blocks are named, whichever thread sees them first") {
  Scene scene;
  scene.plan.records[2].crc32 ^= 1U;
  const int threads = GENERATE(1, 2, 7);

  const Status verified = scene.open().verify_checksums(threads);

  REQUIRE_FALSE(verified.has_value());
  CHECK(verified.error().code == ErrorCode::kCorruption);
  CHECK(verified.error().message.find("/c/rank_1.pt: the 5242957 bytes at 10") !=
        std::string::npos);
}

TEST_CASE("a hash and a merge read no more than the weights, and padding where it is") {
  Scene scene;
  scene.memory.put_file("/c/config.json", "{}");
  const std::uint64_t once = scene.plan.bytes() + 2 * 77;

  REQUIRE(hash_plan(scene.files, scene.plan, 2, {}).has_value());
  CHECK(scene.files.bytes_read() == once);

  scene.files.reset();
  MergeRequest request;
  request.plans = {scene.plan};
  request.source_dirs = {"/c"};
  request.output_dir = "/out/merged";
  request.dtype = DType::kBFloat16;
  REQUIRE(merge(scene.files, request).has_value());
  CHECK(scene.files.bytes_read() == once + std::string("{}").size());
}

TEST_CASE("a tensor that is stored transposed is read once, too, and in its own order") {
  constexpr std::int64_t kSide = 3000;  // 36 MB: three chunks, each with a part of every run
  test::FakeClock clock;
  test::MemoryFileSystem memory{clock};
  test::CountingFileSystem files{memory};
  std::vector<float> stored(kSide * kSide);
  for (std::size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<float>(i);
  const auto bytes = std::as_bytes(std::span(stored));
  memory.put_file("/c/w.pt", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  Plan plan;
  plan.files.push_back({"/c/w.pt", memory.info("/c/w.pt").value()});
  plan.records.push_back({0, 0, bytes.size(), crc32(bytes)});
  plan.tensors.push_back({.name = "w", .dtype = DType::kFloat32, .shape = {kSide, kSide}});
  plan.tensors[0].pieces = {{0, 0, {0, 0}, {kSide, kSide}, {1, kSide}}};
  MergeRequest request;
  request.plans = {plan};
  request.source_dirs = {"/c"};
  request.output_dir = "/out/merged";

  REQUIRE(merge(files, request).has_value());

  CHECK(files.bytes_read() == bytes.size());
  const std::string merged = *memory.content("/out/merged/model.safetensors");
  const std::size_t data = merged.size() - bytes.size();
  std::size_t wrong = 0;
  for (std::size_t row = 0; row < kSide; ++row) {
    for (std::size_t column = 0; column < kSide; ++column) {
      float value = 0;
      std::memcpy(&value, merged.data() + data + 4 * (row * kSide + column), 4);
      wrong += value == stored[column * kSide + row] ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("a merge publishes nothing where a checksum does not fit") {
  Scene scene;
  scene.damage("/c/rank_0.pt", GENERATE(as<std::uint64_t>{}, 10, 10 + 5 * kBlock + 3));
  MergeRequest request;
  request.plans = {scene.plan};
  request.source_dirs = {"/c"};
  request.output_dir = "/out/merged";

  const auto merged = merge(scene.files, request);

  REQUIRE_FALSE(merged.has_value());
  CHECK(merged.error().code == ErrorCode::kCorruption);
  CHECK(scene.memory.tree("/out").empty());
}
