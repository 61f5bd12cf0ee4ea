#include "evaluator/weights/finite.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

using evalcar::checkpoint::DType;
using namespace evalcar::weights;

namespace {

template <typename T>
std::optional<std::uint64_t> check(std::vector<T> values, DType dtype) {
  return first_not_finite(std::as_bytes(std::span(values)), dtype);
}

}  // namespace

TEST_CASE("the first value that is not finite is found wherever it stands") {
  for (const std::size_t place : {0u, 1u, 4095u, 4096u, 9999u}) {
    for (const float bad : {std::nanf(""), -std::nanf("1"), HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> values(10000, -1.5f);
      values[place] = bad;

      CHECK(check(values, DType::kFloat32) == place);
    }
  }
}

TEST_CASE("the largest finite values pass in every dtype") {
  CHECK_FALSE(check<float>({std::numeric_limits<float>::max(), -0.0f, 1e-45f}, DType::kFloat32));
  CHECK_FALSE(check<std::uint16_t>({0x7bff, 0xfbff, 0x0001}, DType::kFloat16));
  CHECK_FALSE(check<std::uint16_t>({0x7f7f, 0xff7f, 0x8000}, DType::kBFloat16));
  CHECK_FALSE(check<double>({std::numeric_limits<float>::max(), -1e-300}, DType::kFloat64));
}

TEST_CASE("infinities of the half-width dtypes are found") {
  CHECK(check<std::uint16_t>({0, 0x7c00}, DType::kFloat16) == 1);
  CHECK(check<std::uint16_t>({0, 0, 0xff80}, DType::kBFloat16) == 2);
}

TEST_CASE("a float64 that float32 cannot hold counts as not finite") {
  CHECK(check<double>({1.0, 1e39}, DType::kFloat64) == 1);
  CHECK(check<double>({-3.4028235677973366e38}, DType::kFloat64) == 0);
}

TEST_CASE("bytes that are not aligned are read all the same") {
  std::vector<std::byte> bytes(1 + 8 * sizeof(float));
  const float bad = HUGE_VALF;
  std::memcpy(bytes.data() + 1 + 3 * sizeof(float), &bad, sizeof(bad));

  CHECK(first_not_finite(std::span(bytes).subspan(1), DType::kFloat32) == 3);
}
