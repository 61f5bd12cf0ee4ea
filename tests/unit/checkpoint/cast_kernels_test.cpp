// The vector forms of the casts against the plain one, and that against hand-computed cases; the
// parity tests compare with torch.
#include "store/checkpoint/cast_kernels.h"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "store/checkpoint/convert.h"
#include "tests/unit/checkpoint/support.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

using Cast = CastKernels::Cast;

template <typename To, typename From>
std::vector<To> run(Cast cast, const std::vector<From>& in) {
  std::vector<To> out(in.size());
  cast(std::as_bytes(std::span(in)).data(), std::as_writable_bytes(std::span(out)).data(),
       in.size());
  return out;
}

/// Where two casts first differ; empty if they do not.
template <typename To, typename From>
std::string difference(Cast tested, Cast reference, const std::vector<From>& in) {
  const std::vector<To> got = run<To>(tested, in);
  const std::vector<To> wanted = run<To>(reference, in);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (got[i] != wanted[i]) {
      return std::to_string(in[i]) + " gives " + std::to_string(got[i]) + ", expected " +
             std::to_string(wanted[i]);
    }
  }
  return {};
}

std::vector<std::uint16_t> all_halves() {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  return all;
}

/// Every upper half of a float with lower halves around each tie: of bfloat16 (at 0x8000), of a
/// normal float16 (at 0x1000) and of each subnormal one, NaNs and infinities among them.
std::vector<std::uint32_t> floats_that_round(std::uint32_t first, std::uint32_t last) {
  std::vector<std::uint32_t> lower = {0, 1, 2, 0xffff};
  for (std::uint32_t tie = 0x800; tie <= 0x8000; tie *= 2) {
    for (const std::uint32_t value : {tie - 1, tie, tie + 1, 3 * tie}) {
      lower.push_back(value & 0xffffU);
    }
  }
  std::vector<std::uint32_t> all;
  for (std::uint32_t upper = first; upper < last; ++upper) {
    for (const std::uint32_t value : lower) all.push_back(upper << 16U | value);
  }
  return all;
}

void compare(const CastKernels& tested) {
  const CastKernels& portable = portable_casts();
  CHECK(difference<std::uint32_t>(tested.float16_to_float32, portable.float16_to_float32,
                                  all_halves())
            .empty());
  CHECK(difference<std::uint32_t>(tested.bfloat16_to_float32, portable.bfloat16_to_float32,
                                  all_halves())
            .empty());
  const auto floats = floats_that_round(0, 65536);
  CHECK(difference<std::uint16_t>(tested.float32_to_bfloat16, portable.float32_to_bfloat16, floats)
            .empty());
  CHECK(difference<std::uint16_t>(tested.float32_to_float16, portable.float32_to_float16, floats)
            .empty());
  // No element is forgotten, and none behind the last is touched, whatever the length.
  for (std::size_t length = 0; length < 70; ++length) {
    std::vector<std::uint32_t> in(length, 0x3f800000U);
    std::vector<std::uint16_t> out(length + 1, 0xabcd);
    std::byte* const to = std::as_writable_bytes(std::span(out)).data();
    tested.float32_to_bfloat16(std::as_bytes(std::span(in)).data(), to, length);
    CHECK(std::count(out.begin(), out.end(), 0x3f80) == static_cast<std::ptrdiff_t>(length));
    CHECK(out.back() == 0xabcd);
  }
}

/// Every one of the 2^32 floats, a part at a time.
void compare_all_floats(const CastKernels& tested) {
  std::vector<std::uint32_t> part(std::size_t{1} << 20U);
  for (std::uint32_t upper = 0; upper < 4096; ++upper) {
    for (std::uint32_t i = 0; i < part.size(); ++i) part[i] = upper << 20U | i;
    const std::string bfloat16 = difference<std::uint16_t>(
        tested.float32_to_bfloat16, portable_casts().float32_to_bfloat16, part);
    const std::string float16 = difference<std::uint16_t>(
        tested.float32_to_float16, portable_casts().float32_to_float16, part);
    REQUIRE(bfloat16 + float16 == "");
  }
}

std::string converted(DType from, const std::string& in, DType to) {
  std::string out(in.size() / dtype_size(from) * dtype_size(to), '\0');
  convert(from, std::as_bytes(std::span<const char>(in)), to,
          std::as_writable_bytes(std::span<char>(out)));
  return out;
}

}  // namespace

TEST_CASE("casts in AVX2 give the bits of the plain ones") {
  const CastKernels* const tested = avx2_casts();
  if (tested == nullptr) SKIP("this CPU has no AVX2 with F16C");
  compare(*tested);
}

TEST_CASE("casts in AVX-512 give the bits of the plain ones") {
  const CastKernels* const tested = avx512_casts();
  if (tested == nullptr) SKIP("this CPU has no AVX-512 F, BW and VL");
  compare(*tested);
}

TEST_CASE("each of the 2^32 floats is cast to the same bits by all instruction sets", "[.full]") {
  for (const CastKernels* const tested : {avx2_casts(), avx512_casts()}) {
    if (tested != nullptr) compare_all_floats(*tested);
  }
}

TEST_CASE("a 16-bit float that was widened narrows to itself, and a NaN to a NaN") {
  const auto halves = all_halves();
  const auto through = [&](Cast widen, Cast narrow, std::uint16_t infinity) {
    const auto back = run<std::uint16_t>(narrow, run<std::uint32_t>(widen, halves));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < halves.size(); ++i) {
      const bool nan = (halves[i] & 0x7fff) > infinity;
      const bool good = nan ? (back[i] & 0x7fff) > infinity : back[i] == halves[i];
      wrong += good ? 0 : 1;
    }
    CHECK(wrong == 0);
  };
  const CastKernels& casts = portable_casts();

  through(casts.float16_to_float32, casts.float32_to_float16, 0x7c00);
  through(casts.bfloat16_to_float32, casts.float32_to_bfloat16, 0x7f80);
}

TEST_CASE("floats are rounded to the nearest, ties to even, by hand-computed cases") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // 1 + 2^-8 lies half way between 1 and 1 + 2^-7: even is 1; 1 + 3 · 2^-8: even is 1 + 2^-6.
  CHECK(converted(DType::kFloat32,
                  bytes_of<float>({1.00390625F, 1.01171875F, -kInfinity, 3.4e38F, -0.0F}),
                  DType::kBFloat16) ==
        bytes_of<std::uint16_t>({0x3f80, 0x3f82, 0xff80, 0x7f80, 0x8000}));
  // float16: 65519 is the last below the tie to infinity; 2^-24 is the smallest subnormal.
  CHECK(converted(DType::kFloat32,
                  bytes_of<float>({65519.0F, 65520.0F, 5.9604645e-8F, 2.9802322e-8F, 4.5e-8F}),
                  DType::kFloat16) ==
        bytes_of<std::uint16_t>({0x7bff, 0x7c00, 0x0001, 0x0000, 0x0001}));
  CHECK(converted(DType::kFloat16, bytes_of<std::uint16_t>({0x0001, 0x7c00, 0xc000}),
                  DType::kFloat32) == bytes_of<float>({5.9604644775390625e-8F, kInfinity, -2.0F}));
  CHECK(converted(DType::kFloat64, bytes_of<double>({1e300, -1e-300, 1.00390625}),
                  DType::kBFloat16) == bytes_of<std::uint16_t>({0x7f80, 0x8000, 0x3f80}));
}

TEST_CASE("what is converted block by block equals what is converted element by element") {
  std::mt19937 random(3);
  const DType from = GENERATE(DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16);
  const DType to = GENERATE(DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16);
  std::string in(2500 * dtype_size(from), '\0');
  for (char& c : in) c = static_cast<char>(random());
  std::string one_by_one;

  for (std::size_t i = 0; i < in.size(); i += dtype_size(from)) {
    one_by_one += converted(from, in.substr(i, dtype_size(from)), to);
  }

  CHECK(converted(from, in, to) == one_by_one);
}

TEST_CASE("a mean in 16 bits is rounded once, not by way of float32") {
  // Just above the middle of 1 and 1 + 2^-7: a float32 rounds it to the middle, whose even side
  // is 1.
  const std::vector<double> sum = {2 * (1 + 0x1p-8) + 0x1p-23, -2 * (1 + 0x1p-8) - 0x1p-23,
                                   2 * (1 + 0x1p-8), 0x1p-1074, 1e300};
  std::vector<std::uint16_t> mean(sum.size());
  write_mean(sum, 2, DType::kBFloat16, std::as_writable_bytes(std::span(mean)));
  CHECK(mean == std::vector<std::uint16_t>{0x3f81, 0xbf81, 0x3f80, 0, 0x7f80});
}

TEST_CASE("a weighted mean is that of float64, rounded once") {
  constexpr std::size_t kElements = 2100;
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> inputs(3, std::vector<float>(kElements));
  for (auto& values : inputs) {
    for (float& value : values) value = normal(random);
  }
  const std::vector<double> weights = {0.5, 2.0, 1.0};
  std::vector<double> sum(kElements, 0.0);

  for (std::size_t k = 0; k < inputs.size(); ++k) {
    accumulate(DType::kFloat32, std::as_bytes(std::span(inputs[k])), weights[k], sum);
  }
  std::vector<float> mean(kElements);
  write_mean(sum, 3.5, DType::kFloat32, std::as_writable_bytes(std::span(mean)));

  for (std::size_t i = 0; i < kElements; ++i) {
    const double exact = 0.5 * inputs[0][i] + 2.0 * inputs[1][i] + 1.0 * inputs[2][i];
    REQUIRE(mean[i] == static_cast<float>(exact / 3.5));
  }
}
