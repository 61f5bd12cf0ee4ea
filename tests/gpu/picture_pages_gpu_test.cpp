// Pictures on their way to a GPU that is busy, through memory that is written again at once.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/all.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "evaluator/engine/picture_pages.h"

using namespace evalcar::engine;

TEST_CASE("memory of a picture is not given away before a busy GPU has copied it") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  const c10::InferenceMode inference;
  const at::Device device(at::kCUDA, 0);
  constexpr std::int64_t kNumbers = std::int64_t{5} << 20, kPictures = 12;
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  const at::Tensor busy = at::randn({8192, 8192}, options);
  const at::Tensor all = at::empty({kPictures, kNumbers}, options);
  PicturePages pages(device, 2 * PicturePages::kSlab, [] { return std::uint64_t{1} << 40U; });
  for (int i = 0; i < 6; ++i) (void)at::matmul(busy, busy);
  int kept = 0;
  for (std::int64_t i = 0; i < kPictures; ++i) {
    const auto values = pages.take(static_cast<std::size_t>(kNumbers));
    std::fill_n(values.get(), kNumbers, static_cast<float>(i));
    const bool is_kept = pages.holds(values.get());
    kept += is_kept ? 1 : 0;
    all.select(0, i).copy_(at::from_blob(values.get(), {kNumbers}, at::kFloat),
                           /*non_blocking=*/is_kept);
    if (is_kept) pages.sent(values.get());
  }
  for (std::int64_t i = 0; i < kPictures; ++i) {
    CAPTURE(i);
    CHECK(at::all(at::eq(all.select(0, i), static_cast<double>(i))).item<bool>());
  }
  CHECK(kept >= 6);  // three to a slab; the others are of the heap where the GPU is slow
  CHECK(pages.bytes() == 2 * PicturePages::kSlab);
}
