#include "store/checkpoint/diff_plans.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/checkpoint/support.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;
using Catch::Matchers::WithinRel;

namespace {

/// Folders with one tensor "w" each.
struct Scene {
  Plan put(const std::string& folder, const std::string& dtype, std::size_t elements,
           const std::string& data) {
    files.put_file("/" + folder + "/model.safetensors",
                   safetensors_bytes(R"({"w":{"dtype":")" + dtype + R"(","shape":[)" +
                                         std::to_string(elements) + R"(],"data_offsets":[0,)" +
                                         std::to_string(data.size()) + "]}}",
                                     data));
    files.put_file("/" + folder + "/config.json", "{}");
    return make_plan(files, "/" + folder, WeightsKind::kRegular).value();
  }
  Result<std::vector<ValueDifference>> diff(const Plan& here, const Plan& there) {
    return diff_values(files, here, there, {{0, 0}}, 2, {});
  }

  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
};

}  // namespace

TEST_CASE("differences are counted and measured against the other tensor") {
  Scene scene;
  const Plan here = scene.put("a", "F32", 4, bytes_of<float>({1, 2, 3, -0.0F}));
  const Plan there = scene.put("b", "F32", 4, bytes_of<float>({1, 5, -1, 0}));

  const ValueDifference found = scene.diff(here, there).value()[0];

  CHECK(found.elements == 2);
  CHECK(found.max_abs == 4.0);
  CHECK_THAT(*found.relative_l2, WithinRel(std::sqrt(25.0) / std::sqrt(27.0), 1e-15));
}

TEST_CASE("integers of 64 bits are compared as they are, beyond what float64 holds") {
  constexpr std::int64_t kLarge = std::int64_t{1} << 60U;
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  Scene scene;
  const Plan here = scene.put("a", "I64", 3, bytes_of<std::int64_t>({kLarge, 7, kLeast}));
  const Plan there = scene.put("b", "I64", 3, bytes_of<std::int64_t>({kLarge + 1, 7, kLeast}));
  const Plan far = scene.put("c", "I64", 3, bytes_of<std::int64_t>({kLarge, 7, -1 - kLeast}));

  CHECK(scene.diff(here, there).value()[0].elements == 1);
  CHECK(scene.diff(here, there).value()[0].max_abs == 1.0);
  CHECK(scene.diff(here, far).value()[0].max_abs == 18446744073709551615.0);
}

TEST_CASE("tensors of other types are compared by value") {
  Scene scene;
  const Plan wide = scene.put("a", "F32", 3, bytes_of<float>({1, 2, 3.5F}));
  const Plan narrow = scene.put("b", "BF16", 3, bytes_of<std::uint16_t>({0x3f80, 0x4000, 0x4040}));
  const Plan counts = scene.put("c", "I64", 3, bytes_of<std::int64_t>({1, 2, 3}));
  const Plan mask = scene.put("d", "BOOL", 3, std::string({1, 0, 0}));

  CHECK(scene.diff(wide, narrow).value()[0].max_abs == 0.5);
  CHECK(scene.diff(counts, wide).value()[0].max_abs == 0.5);
  CHECK(scene.diff(mask, counts).value()[0].elements == 2);
}

TEST_CASE("a NaN equals a NaN and differs from every number, by no known amount") {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  Scene scene;
  const Plan here = scene.put("a", "F32", 3, bytes_of<float>({kNaN, 2, 3}));
  const Plan same = scene.put("b", "F32", 3, bytes_of<float>({kNaN, 2, 4}));
  const Plan other = scene.put("c", "F32", 3, bytes_of<float>({1, 2, 3}));

  const ValueDifference like = scene.diff(here, same).value()[0];
  const ValueDifference unlike = scene.diff(here, other).value()[0];

  CHECK(like.elements == 1);
  CHECK(like.max_abs == 1.0);
  CHECK(unlike.elements == 1);
  CHECK_FALSE(unlike.max_abs.has_value());
  CHECK_FALSE(unlike.relative_l2.has_value());
}

TEST_CASE("what cannot be compared is refused") {
  Scene scene;
  const Plan three = scene.put("a", "F32", 3, bytes_of<float>({1, 2, 3}));
  const Plan two = scene.put("b", "F32", 2, bytes_of<float>({1, 2}));
  const Plan eighths = scene.put("c", "F8_E4M3", 3, "abc");

  CHECK(scene.diff(three, two).error().code == ErrorCode::kInvalidArgument);
  CHECK(scene.diff(three, eighths).error().code == ErrorCode::kInvalidArgument);
}
