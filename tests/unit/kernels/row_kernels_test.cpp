#include "evaluator/kernels/row_kernels.h"

#include <algorithm>
#include <bit>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <string_view>
#include <type_traits>
#include <vector>

using namespace evalcar::kernels;

namespace {

float wide(float weight) { return weight; }
float wide(std::uint16_t weight) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(weight) << 16U);
}

std::vector<float> numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> all(count);
  for (float& each : all) each = normal(random);
  return all;
}

template <typename Weight>
struct Scene {
  Scene(std::int64_t row_count, std::int64_t output_count, std::int64_t columns)
      : rows(row_count),
        outputs(output_count),
        width(columns),
        x(numbers(static_cast<std::size_t>(rows * width), 1)),
        bias(numbers(static_cast<std::size_t>(outputs), 2)) {
    for (const float value : numbers(static_cast<std::size_t>(outputs * width), 3)) {
      if constexpr (std::is_same_v<Weight, float>) {
        w.push_back(value);
      } else {
        w.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U));
      }
    }
  }

  /// Rows [first, first + count) in one call, of outputs [from, outputs).
  std::vector<float> multiply(const RowKernels& kernels, std::int64_t first, std::int64_t count,
                              bool with_bias, std::int64_t from = 0) const {
    std::vector<float> given(x.begin() + first * width, x.begin() + (first + count) * width);
    if constexpr (!std::is_same_v<Weight, float>) {
      const std::vector<float> plain = given;
      for (std::int64_t m = 0; m < count; ++m)
        kernels.arrange(plain.data() + m * width, given.data() + m * width, width);
    }
    std::vector<float> y(static_cast<std::size_t>(count * outputs), NAN);
    const RowProduct<Weight> product{.x = given.data(),
                                     .rows = count,
                                     .w = w.data() + from * width,
                                     .outputs = outputs - from,
                                     .width = width,
                                     .bias = with_bias ? bias.data() + from : nullptr,
                                     .y = y.data() + from,
                                     .stride = outputs};
    if constexpr (std::is_same_v<Weight, float>) {
      kernels.multiply(product);
    } else {
      kernels.multiply_bf16(product);
    }
    return y;
  }

  void check(const RowKernels& kernels, bool with_bias) const {
    const std::vector<float> y = multiply(kernels, 0, rows, with_bias);
    for (std::int64_t m = 0; m < rows; ++m) {
      for (std::int64_t n = 0; n < outputs; ++n) {
        double sum = with_bias ? bias[static_cast<std::size_t>(n)] : 0;
        double size = std::abs(sum);
        for (std::int64_t k = 0; k < width; ++k) {
          const double term = static_cast<double>(x[static_cast<std::size_t>(m * width + k)]) *
                              wide(w[static_cast<std::size_t>(n * width + k)]);
          sum += term;
          size += std::abs(term);
        }
        // Far below the bound of any order of summation, width · 2^-24.
        CAPTURE(kernels.name, rows, outputs, width, m, n);
        REQUIRE(std::abs(y[static_cast<std::size_t>(m * outputs + n)] - sum) <= size * 4e-6);
      }
    }
  }

  std::int64_t rows, outputs, width;
  std::vector<float> x, bias;
  std::vector<Weight> w;
};

}  // namespace

TEST_CASE("the last row kernels are those of any machine") {
  REQUIRE_FALSE(row_kernels().empty());
  CHECK(std::string_view(row_kernels().back().name) == "portable");
}

TEMPLATE_TEST_CASE("all row kernels compute the products of a double sum", "", float,
                   std::uint16_t) {
  for (const RowKernels& kernels : row_kernels()) {
    for (const std::int64_t width : {1, 7, 8, 15, 16, 31, 32, 33, 64, 100, 257}) {
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 8, 11}) {
        for (const std::int64_t outputs : {1, 2, 3, 5, 8, 13, 19})
          Scene<TestType>(rows, outputs, width).check(kernels, rows % 2 == 0);
      }
    }
  }
}

TEMPLATE_TEST_CASE("a row's products are the same bits alone and among others", "", float,
                   std::uint16_t) {
  const std::int64_t width = GENERATE(263, 287);  // what fills no vector: 7 and 31 numbers
  const Scene<TestType> scene(9, 21, width);
  for (const RowKernels& kernels : row_kernels()) {
    const std::vector<float> all = scene.multiply(kernels, 0, 9, true);
    for (std::int64_t m = 0; m < 9; ++m) {
      const std::vector<float> alone = scene.multiply(kernels, m, 1, true);
      CAPTURE(kernels.name, m);
      CHECK(std::equal(alone.begin(), alone.end(), all.begin() + m * 21));
    }
    const std::vector<float> tail = scene.multiply(kernels, 0, 9, true, 5);
    for (std::int64_t m = 0; m < 9; ++m) {
      CHECK(std::equal(tail.begin() + m * 21 + 5, tail.begin() + (m + 1) * 21,
                       all.begin() + m * 21 + 5));
    }
  }
}
