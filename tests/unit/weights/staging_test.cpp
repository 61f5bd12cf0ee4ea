#include "evaluator/weights/staging.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <utility>
#include <vector>

using namespace evalcar::weights;

namespace {

const at::Device kHost = at::kCPU;

void put(Staging& staging, const std::vector<float>& values, const at::Tensor& place) {
  const auto part = staging.next(values.size() * sizeof(float));
  std::memcpy(part.data(), values.data(), part.size());
  staging.copy_to(place, at::kFloat);
}

}  // namespace

TEST_CASE("parts of any size come out of staging in their order, cast to the place's type") {
  const c10::InferenceMode inference;
  Staging staging(kHost, 3 * sizeof(float));
  const at::Tensor place = at::zeros({6}, at::kBFloat16);

  put(staging, {1.5F, -2.0F}, place.narrow(0, 0, 2));
  put(staging, {3.0F, 1.00390625F, 5.0F}, place.narrow(0, 2, 3));  // the second is no bfloat16
  put(staging, {6.0F}, place.narrow(0, 5, 1));                     // smaller than what is held
  staging.finish();

  const std::vector<float> expected{1.5F, -2.0F, 3.0F, 1.0F, 5.0F, 6.0F};
  for (int i = 0; i < 6; ++i)
    CHECK(place[i].item<float>() == expected[static_cast<std::size_t>(i)]);
}

TEST_CASE("the host's own memory needs one buffer, a GPU's two, in powers of two") {
  CHECK(Staging::bytes(kHost, 1000) == 1000);
  CHECK(Staging::bytes(at::Device(at::kCUDA, 0), 1000) == 2048);
}

TEST_CASE("page-locked memory can be moved, and what it held before is gone") {
  PageLocked one(64, kHost);
  const void* const address = one.bytes().const_data_ptr();
  PageLocked other(32, kHost);
  other = std::move(one);
  CHECK(other.bytes().const_data_ptr() == address);
  CHECK(other.bytes().numel() == 64);
  CHECK_FALSE(one.bytes().defined());  // NOLINT(bugprone-use-after-move): that is asked
  CHECK_FALSE(PageLocked().bytes().defined());
}
