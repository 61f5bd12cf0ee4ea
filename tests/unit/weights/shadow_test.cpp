#include "evaluator/weights/shadow.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::weights;

namespace {

/// Two tensors in one file; "a" and "b" are stacked in one resident tensor.
struct Scene {
  Scene() {
    layout.canonical_name = [](std::string_view stored) { return std::string(stored); };
    layout.add_stacked("ab", {{.name = "a", .shape = {2, 3}}, {.name = "b", .shape = {1, 3}}});
    write();
  }

  void write() {
    files.put_file("/c/w", std::string(reinterpret_cast<const char*>(values.data()), 9 * 4));
    plan = make();
  }
  checkpoint::Plan make() {
    checkpoint::Plan made;
    made.files.push_back({"/c/w", files.info("/c/w").value()});
    made.tensors = {tensor("a", {2, 3}, 0), tensor("b", {1, 3}, 24)};
    return made;
  }
  static checkpoint::TensorPlan tensor(const std::string& name, std::vector<std::int64_t> shape,
                                       std::uint64_t offset) {
    return {.name = name,
            .dtype = checkpoint::DType::kFloat32,
            .shape = shape,
            .pieces = {{.file = 0,
                        .file_offset = offset,
                        .start = {0, 0},
                        .size = shape,
                        .stride_elements = {3, 1}}},
            .tied_to = {}};
  }

  Result<Shadow> read() { return read_shadow(files, plan, layout, at::kFloat, at::kCPU, 2, {}); }
  bool is_current(const Shadow& shadow) {
    return weights::is_current(shadow, files, make(), layout, at::kFloat, at::kCPU);
  }

  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  WeightLayout layout;
  checkpoint::Plan plan;
};

}  // namespace

TEST_CASE("a shadow holds what a load would put in place, and tells the same of it") {
  Scene scene;
  Arena arena(scene.layout, at::kFloat, at::kCPU);
  const auto loaded = load(scene.files, scene.plan, scene.layout,
                           assign(scene.plan, scene.layout).value(), arena, 1, nullptr, {});

  const auto shadow = scene.read();

  REQUIRE(loaded.has_value());
  REQUIRE(shadow.has_value());
  CHECK(shadow->report.weights_sha256 == loaded->weights_sha256);
  CHECK(shadow->report.bytes == 36);
  CHECK(shadow->report.tensors == 2);
  CHECK(std::memcmp(shadow->arena.tensor("ab").const_data_ptr(), scene.values.data(), 36) == 0);
  CHECK(scene.is_current(*shadow));
}

TEST_CASE("a shadow of files that were touched since is not current") {
  Scene scene;
  const auto shadow = scene.read();
  REQUIRE(shadow.has_value());

  SECTION("rewritten with other values") {
    scene.clock.advance(std::chrono::seconds(1));
    scene.values[0] = 7;
    scene.write();
  }
  SECTION("rewritten with the same values") {
    scene.clock.advance(std::chrono::seconds(1));
    scene.write();
  }
  SECTION("linked: its ctime is another") {
    scene.clock.advance(std::chrono::seconds(1));
    REQUIRE(scene.files.hard_link("/c/w", "/c/l").has_value());
  }

  CHECK_FALSE(scene.is_current(*shadow));
}

TEST_CASE("a file that goes between the plan and the load is seen") {
  Scene scene;
  const auto shadow = scene.read();
  REQUIRE(shadow.has_value());
  const checkpoint::Plan plan = scene.make();

  REQUIRE(scene.files.remove_file("/c/w").has_value());

  CHECK_FALSE(weights::is_current(*shadow, scene.files, plan, scene.layout, at::kFloat, at::kCPU));
}

TEST_CASE("a shadow is of one layout and one type") {
  Scene scene;
  const auto shadow = scene.read();
  REQUIRE(shadow.has_value());
  WeightLayout other = scene.layout;

  SECTION("a source that lies elsewhere in the same tensor") {
    std::swap(other.sources[0].name, other.sources[1].name);
  }
  SECTION("a tie more") { other.ties.push_back({"c", "a"}); }
  SECTION("other tensors in memory") { other.residents[0].shape = {9}; }

  CHECK_FALSE(weights::is_current(*shadow, scene.files, scene.plan, other, at::kFloat, at::kCPU));
  CHECK_FALSE(
      weights::is_current(*shadow, scene.files, scene.plan, scene.layout, at::kBFloat16, at::kCPU));
}

TEST_CASE("a checkpoint that cannot be loaded makes no shadow, for the same reason") {
  Scene scene;

  SECTION("a value that is no number") {
    scene.values[4] = std::numeric_limits<float>::quiet_NaN();
    scene.write();
    const auto shadow = scene.read();
    REQUIRE_FALSE(shadow.has_value());
    CHECK(shadow.error().message.find("a: element 4 is NaN") != std::string::npos);
  }
  SECTION("a tensor that is missing") {
    scene.plan.tensors.pop_back();
    const auto shadow = scene.read();
    REQUIRE_FALSE(shadow.has_value());
    CHECK(shadow.error().message.find("1 missing (b)") != std::string::npos);
  }
  SECTION("a file that changed while it was read") {
    scene.files.on_call([&](const test::Call& call) {
      if (call.operation != "read_at" || scene.files.count("read_at") != 1) return;
      scene.clock.advance(std::chrono::seconds(1));
      scene.files.put_file("/c/w", std::string(36, '\0'));
    });
    const auto shadow = scene.read();
    REQUIRE_FALSE(shadow.has_value());
    CHECK(shadow.error().code == ErrorCode::kUnavailable);
  }
}
