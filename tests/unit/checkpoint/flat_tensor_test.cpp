// Ranges of a flat vector as boxes of tensors.
#include "store/checkpoint/flat_tensor.h"

#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <random>

#include "store/checkpoint/numeric.h"
#include "tests/unit/checkpoint/support.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

TEST_CASE("a flat vector in segments is read as the tensor that it is, whatever its shape") {
  std::mt19937 engine(7);
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(engine);
  };
  RealFileSystem files;
  for (int round = 0; round < 300; ++round) {
    const ScratchFolder scratch;
    std::vector<std::int64_t> shape(static_cast<std::size_t>(draw(0, 4)));
    for (std::int64_t& size : shape) size = draw(round % 10 == 0 ? 0 : 1, 5);
    const auto elements = static_cast<std::size_t>(checked_elements(shape).value());
    // The tensor's elements begin somewhere in a vector that is cut anywhere, into two files.
    const auto before = static_cast<std::size_t>(draw(0, 7));
    const auto total = before + elements + static_cast<std::size_t>(draw(0, 7));
    std::vector<float> values(total);
    std::iota(values.begin(), values.end(), 0.0F);
    const std::string whole = bytes_of(values);
    Plan plan;
    FlatVector vector;
    PlanBudget budget;
    for (std::size_t begin = 0, file = 0; begin < total; ++file) {
      const auto count = static_cast<std::size_t>(
          draw(1, std::max<std::int64_t>(1, static_cast<std::int64_t>(total - begin))));
      const std::string name = std::to_string(file);
      scratch.write(name, "pad" + whole.substr(begin * 4, count * 4));
      plan.files.push_back({scratch.at(name), files.info(scratch.at(name)).value()});
      REQUIRE(vector.append(count, DType::kFloat32, file, 3).has_value());
      begin += count;
    }
    TensorPlan tensor{"t", DType::kFloat32, shape, {}, std::nullopt};
    REQUIRE(vector.add_pieces(tensor, 0, before, elements, budget).has_value());
    REQUIRE(check_tiling(tensor).has_value());
    plan.tensors.push_back(tensor);
    const auto reader = PlanReader::open(files, plan);
    REQUIRE(reader.has_value());
    CHECK((read_tensor(*reader, plan, 0) == whole.substr(before * 4, elements * 4)));
  }
}

TEST_CASE("a range beyond the vector or the tensor is refused") {
  FlatVector vector;
  PlanBudget budget;
  REQUIRE(vector.append(6, DType::kFloat32, 0, 0).has_value());
  TensorPlan tensor{"t", DType::kFloat32, {2, 3}, {}, std::nullopt};
  CHECK_FALSE(vector.add_pieces(tensor, 0, 1, 6, budget).has_value());
  CHECK_FALSE(vector.add_pieces(tensor, 0, UINT64_MAX, 2, budget).has_value());
  CHECK_FALSE(vector.add_pieces(tensor, 1, 0, 6, budget).has_value());
  CHECK(vector.add_pieces(tensor, 0, 0, 6, budget).has_value());
  CHECK_FALSE(vector.append(UINT64_MAX, DType::kFloat32, 0, 0).has_value());
}

TEST_CASE("a flat vector has one type, and a tensor in it the same") {
  FlatVector vector;
  PlanBudget budget;
  REQUIRE(vector.append(0, DType::kFloat64, 0, 0).has_value());
  REQUIRE(vector.append(6, DType::kFloat32, 0, 0).has_value());
  CHECK_FALSE(vector.append(2, DType::kFloat64, 0, 24).has_value());
  TensorPlan tensor{"t", DType::kFloat64, {2, 3}, {}, std::nullopt};
  CHECK_FALSE(vector.add_pieces(tensor, 0, 0, 6, budget).has_value());
  tensor.stored_dtype = DType::kFloat32;
  CHECK(vector.add_pieces(tensor, 0, 0, 6, budget).has_value());
}
