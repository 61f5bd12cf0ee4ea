// What is compiled for each CPU runs as what this one can do.
#include "evaluator/kernels/lanes.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

using namespace evalcar::kernels;

namespace {

EVALCAR_FOR_EACH_CPU
void multiply_and_add(const float* a, const float* b, float* sums) {
  Lanes x, y, z;
  load(a, x);
  load(b, y);
  load(sums, z);
  add_product(z, x, y);
  store(z, sums);
}

}  // namespace

TEST_CASE("a product is added without a rounding of its own where the CPU can do that") {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("x86-64-v3")) SKIP("this CPU has no such instruction");
  constexpr float kNear = 1.0F + 0x1p-12F;  // whose square has a bit more than float32
  float a[kLanes], b[kLanes], sums[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) {
    a[i] = b[i] = kNear;
    sums[i] = -1.0F;
  }
  multiply_and_add(a, b, sums);

  const float rounded = kNear * kNear - 1.0F;
  REQUIRE(std::fma(kNear, kNear, -1.0F) != rounded);
  for (const float sum : sums) CHECK(sum == std::fma(kNear, kNear, -1.0F));
#else
  SKIP("x86-64 alone has more than one version of it");
#endif
}
