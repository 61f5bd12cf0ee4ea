// Weights on their way to a GPU through two buffers, while the GPU is busy with something else.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/remainder.h>
#include <c10/core/InferenceMode.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "evaluator/weights/staging.h"
#include "tests/gpu/prepared_inputs.h"

using namespace evalcar;

TEST_CASE("parts that are filled while earlier ones wait for a busy GPU arrive as they were") {
  const auto bed = testing::find_test_bed();
  if (!bed.missing.empty()) SKIP(bed.missing);
  const at::Device device(bed.device);
  const c10::InferenceMode inference;
  constexpr std::int64_t kPart = std::int64_t{8} << 20, kParts = 7;  // elements
  const at::Tensor numbers = at::arange(kPart * kParts, at::kFloat).remainder(8191.0);
  const std::int64_t width = device.is_cpu() ? 64 : 8192;
  const at::Tensor busy = at::randn({width, width}, at::TensorOptions().device(device));
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor place =
        at::empty({kPart * kParts}, at::TensorOptions().device(device).dtype(dtype));
    weights::Staging staging(device, static_cast<std::size_t>(kPart) * sizeof(float));
    for (int i = 0; i < 4; ++i) (void)at::matmul(busy, busy);
    for (std::int64_t i = 0; i < kParts; ++i) {
      const at::Tensor part = numbers.narrow(0, i * kPart, kPart);
      const auto to = staging.next(static_cast<std::size_t>(kPart) * sizeof(float));
      std::memcpy(to.data(), part.const_data_ptr(), to.size());
      staging.copy_to(place.narrow(0, i * kPart, kPart), at::kFloat);
    }
    staging.finish();
    INFO(dtype);
    CHECK(at::equal(place.cpu(), numbers.to(dtype)));
  }
}
