#include "evaluator/weights/load.h"

#include <ATen/ops/from_blob.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "store/checkpoint/crc32.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::weights;

namespace {

constexpr std::size_t kRows = 80 * 1024;
constexpr std::size_t kColumns = 256;  // 80 MiB of float32: read in two parts
constexpr std::size_t kElements = kRows * kColumns;
constexpr std::size_t kPadding = 20 << 20;  // behind it, as FSDP2 pads short shards

/// One tensor in one file, which states the checksum of it and of its padding.
struct Scene {
  Scene() {
    for (std::size_t i = 0; i < kElements; ++i) values[i] = static_cast<float>(i % 1000);
    layout.canonical_name = [](std::string_view stored) { return std::string(stored); };
    layout.add("w", {kRows, kColumns});
    write();
  }

  void write() {
    std::string content(kElements * sizeof(float) + kPadding, '\0');
    std::memcpy(content.data(), values.data(), kElements * sizeof(float));
    files.put_file("/c/w.pt", content);
    plan = {};
    plan.files.push_back({"/c/w.pt", files.info("/c/w.pt").value()});
    plan.tensors.push_back({.name = "w",
                            .dtype = checkpoint::DType::kFloat32,
                            .shape = {kRows, kColumns},
                            .pieces = {{.file = 0,
                                        .file_offset = 0,
                                        .start = {0, 0},
                                        .size = {kRows, kColumns},
                                        .stride_elements = {kColumns, 1}}},
                            .tied_to = {}});
    plan.records.push_back(
        {0, 0, content.size(), checkpoint::crc32(std::as_bytes(std::span(content)))});
    files.reset_calls();
  }

  Result<LoadReport> load(std::stop_token stop = {}, at::ScalarType dtype = at::kFloat) {
    Arena arena(layout, dtype, at::kCPU);
    auto report = weights::load(
        files, plan, layout, assign(plan, layout).value(), arena, 2,
        [&](std::uint64_t done, std::uint64_t total) { told.emplace_back(done, total); },
        std::move(stop));
    const at::Tensor expected =
        at::from_blob(values.data(), {kRows, kColumns}, at::kFloat).to(dtype);
    if (report.has_value())
      same = std::memcmp(arena.tensor("w").const_data_ptr(), expected.const_data_ptr(),
                         expected.nbytes()) == 0;
    return report;
  }

  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  std::vector<float> values = std::vector<float>(kElements);
  WeightLayout layout;
  checkpoint::Plan plan;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> told;
  bool same = false;
};

}  // namespace

TEST_CASE("a tensor read in parts is whole, has one hash, and the progress counts the checksums") {
  Scene scene;

  const auto report = scene.load();

  REQUIRE(report.has_value());
  CHECK(scene.same);
  const std::string sha =
      checkpoint::tensor_sha256(std::as_bytes(std::span<const float>(scene.values)));
  CHECK(report->weights_sha256 ==
        checkpoint::weights_sha256({{"w", checkpoint::DType::kFloat32, {kRows, kColumns}, sha}}));
  REQUIRE_FALSE(scene.told.empty());
  const std::uint64_t all =
      scene.plan.bytes() + kPadding;  // what the tensor took is not read again
  CHECK(scene.told.back() == std::pair(all, all));
  for (std::size_t i = 1; i < scene.told.size(); ++i)
    CHECK(scene.told[i - 1].first <= scene.told[i].first);
}

TEST_CASE(
    "a tensor that is cast on its way is read in parts, too, with the hash of what is stored") {
  Scene scene;
  const auto as_stored = scene.load();
  scene.files.reset_calls();

  const auto report = scene.load({}, at::kBFloat16);

  REQUIRE(report.has_value());
  CHECK(scene.same);
  CHECK(report->weights_sha256 == as_stored->weights_sha256);
  CHECK(scene.files.count("read_at") == 3 + 20);  // parts of 32 MiB; the padding takes 20 more
  const std::uint64_t part = std::uint64_t{32} << 20U;
  const at::Device gpu(at::kCUDA, 0);
  CHECK(staging_bytes(scene.plan, at::kCPU, 3) == 3 * part);
  CHECK(staging_bytes(scene.plan, gpu, 3) == 6 * part);
  CHECK(casting_bytes(scene.plan, at::kBFloat16, gpu, 3) == 3 * part);
  CHECK(casting_bytes(scene.plan, at::kFloat, gpu, 3) == 0);
  CHECK(casting_bytes(scene.plan, at::kBFloat16, at::kCPU, 3) == 0);
}

TEST_CASE("no more threads read than have room for what is on its way, and one always does") {
  checkpoint::Plan plan;
  plan.tensors.push_back({.name = "w", .dtype = checkpoint::DType::kBFloat16, .shape = {1 << 26}});
  const at::Device gpu(at::kCUDA, 0);
  const std::uint64_t one = staging_bytes(plan, gpu, 1);

  CHECK(one == std::uint64_t{64} << 20U);
  CHECK(threads_within(plan, gpu, 16, 16 * one) == 16);
  CHECK(threads_within(plan, gpu, 16, 16 * one - 1) == 15);
  CHECK(threads_within(plan, gpu, 16, 3 * one) == 3);
  CHECK(threads_within(plan, gpu, 16, 0) == 1);
  CHECK(threads_within(plan, at::kCPU, 4, 3 * one) == 4);  // one buffer each, of half as much
}

TEST_CASE("large tensors are read before the many small ones, which keep the files' order") {
  WeightLayout layout;
  layout.canonical_name = [](std::string_view stored) { return std::string(stored); };
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  checkpoint::Plan plan;
  const std::vector<std::int64_t> sizes{1, 2, 3, 100, 1, 200};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::string name(1, static_cast<char>('a' + i)), path = "/" + name;
    files.put_file(path, std::string(static_cast<std::size_t>(sizes[i]) * sizeof(float), '\0'));
    plan.files.push_back({path, files.info(path).value()});
    plan.tensors.push_back({.name = name,
                            .dtype = checkpoint::DType::kFloat32,
                            .shape = {sizes[i]},
                            .pieces = {{.file = i,
                                        .file_offset = 0,
                                        .start = {0},
                                        .size = {sizes[i]},
                                        .stride_elements = {1}}},
                            .tied_to = {}});
    layout.add(name, {sizes[i]});
  }
  files.reset_calls();
  Arena arena(layout, at::kBFloat16, at::kCPU);

  REQUIRE(
      load(files, plan, layout, assign(plan, layout).value(), arena, 1, nullptr, {}).has_value());

  std::string order;
  for (const auto& call : files.calls()) {
    if (call.operation == "read_at") order += call.path;
  }
  CHECK(order == "/d/f/a/b/c/e");
}

TEST_CASE("a NaN in a later part of a tensor is named by its place in the whole tensor") {
  Scene scene;
  scene.values[kElements - 3] = std::numeric_limits<float>::quiet_NaN();
  scene.write();

  const auto report = scene.load();

  REQUIRE_FALSE(report.has_value());
  CHECK(report.error().message.find("w: element " + std::to_string(kElements - 3) + " is NaN") !=
        std::string::npos);
}

TEST_CASE("a stop while checksums are verified ends the load long before they are through") {
  Scene scene;
  std::stop_source stop;
  const std::size_t reads_of_weights = 2;  // one a part; the padding takes 20 more
  scene.files.on_call([&](const test::Call& call) {
    if (call.operation != "read_at" || scene.files.count("read_at") < reads_of_weights + 1) return;
    stop.request_stop();
  });

  const auto report = scene.load(stop.get_token());

  REQUIRE_FALSE(report.has_value());
  CHECK(report.error().code == ErrorCode::kCancelled);
  CHECK(scene.files.count("read_at") > reads_of_weights);
  CHECK(scene.files.count("read_at") <= reads_of_weights + 3);  // two threads read at once
}

TEST_CASE("only what is stored as bfloat16 as a whole is told to be that") {
  WeightLayout layout;
  layout.canonical_name = [](std::string_view stored) { return std::string(stored); };
  layout.add("r", {3});
  layout.add_stacked("both", {{.name = "p", .shape = {2}}, {.name = "q", .shape = {2}}});
  layout.ties.push_back({"s", "r"});
  checkpoint::Plan plan;
  const auto add = [&](const char* name, checkpoint::DType dtype, std::int64_t size) {
    plan.tensors.push_back(
        {.name = name, .dtype = dtype, .shape = {size}, .pieces = {}, .tied_to = {}});
  };
  add("q", checkpoint::DType::kBFloat16, 2);
  add("p", checkpoint::DType::kFloat32, 2);
  add("s", checkpoint::DType::kFloat32, 3);  // a tie: it does not land anywhere
  add("r", checkpoint::DType::kBFloat16, 3);

  CHECK(stored_as_bfloat16(plan, layout, assign(plan, layout).value()) ==
        std::vector<bool>{true, false});
}

TEST_CASE("a tied pair that is stored under the tie's name alone lands where the other one would") {
  WeightLayout layout;
  layout.canonical_name = [](std::string_view stored) { return std::string(stored); };
  layout.add("r", {3});
  layout.ties.push_back({"s", "r"});
  checkpoint::Plan plan;
  const auto add = [&](const char* name, std::int64_t size) {
    plan.tensors.push_back({.name = name,
                            .dtype = checkpoint::DType::kBFloat16,
                            .shape = {size},
                            .pieces = {},
                            .tied_to = {}});
  };
  CHECK(assign(plan, layout).error().message.find("1 missing (r)") != std::string::npos);

  add("s", 3);
  const auto alone = assign(plan, layout);
  REQUIRE(alone.has_value());
  CHECK_FALSE(alone->targets[0].tie);
  CHECK(stored_as_bfloat16(plan, layout, *alone) == std::vector<bool>{true});

  add("r", 3);
  const auto both = assign(plan, layout);
  REQUIRE(both.has_value());
  CHECK(both->targets[0].tie);
  CHECK_FALSE(both->targets[1].tie);
  plan.tensors.pop_back();
  plan.tensors[0].shape = {2};
  CHECK(assign(plan, layout).error().message.find("s is [2], expected [3]") != std::string::npos);
}
