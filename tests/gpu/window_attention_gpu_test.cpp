#include "evaluator/kernels/window_attention.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/all.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/randn.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

using namespace evalcar::kernels;

TEST_CASE("the window attention kernel gives its ATen version's values, and the same bits twice") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  for (const std::int64_t dim : {64, 80}) {
    std::vector<std::int64_t> begins = {0};
    for (std::int64_t i = 0; i < 300; ++i) begins.push_back(begins.back() + 1 + (i * 37) % 64);
    const std::int64_t rows = begins.back();
    const at::Tensor qkv = at::randn({rows, 3, 16, dim}, options);
    const at::Tensor q = qkv.select(1, 0).contiguous(), k = qkv.select(1, 1), v = qkv.select(1, 2);
    const Windows windows = windows_at(begins, q.device());
    REQUIRE(windows.most == 64);
    REQUIRE(has_window_kernel(q, k, v, windows));
    const at::Tensor got = at::full({rows, 16 * dim}, NAN, options), again = got.clone();
    const at::Tensor wanted = got.clone();

    window_attention(q, k, v, windows, got);

    window_attention_reference(q, k, v, begins, wanted);
    const at::Tensor expected = wanted.to(at::kFloat);
    const at::Tensor error = (got.to(at::kFloat) - expected).abs();
    // Half a unit of the last place of the result, and of each power.
    CAPTURE(dim);
    CHECK(error.max().item<float>() <= 7e-3F * expected.abs().max().item<float>());
    CHECK(error.mean().item<float>() <= 1.5e-3F * expected.abs().mean().item<float>());
    window_attention(q, k, v, windows, again);
    CHECK(at::equal(got, again));
  }
}

TEST_CASE("what the window attention kernel cannot take is told before") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  const auto heads = [&](std::int64_t dim) { return at::randn({130, 2, dim}, options); };
  const Windows small = windows_at(std::vector<std::int64_t>{0, 64, 128}, at::kCUDA);
  const Windows large = windows_at(std::vector<std::int64_t>{0, 65, 128}, at::kCUDA);
  const at::Tensor x = heads(80), odd = heads(72), wide = x.to(at::kFloat);
  const at::Tensor displaced = at::randn({130 * 2 * 80 + 1}, options).narrow(0, 1, 130 * 2 * 80);
  CHECK(has_window_kernel(x, x, x, small));
  CHECK_FALSE(has_window_kernel(x, x, x, large));
  CHECK_FALSE(has_window_kernel(odd, odd, odd, small));
  CHECK_FALSE(has_window_kernel(wide, wide, wide, small));
  CHECK_FALSE(has_window_kernel(x, displaced.view({130, 2, 80}), x, small));
  CHECK_FALSE(has_window_kernel(x, x, x.transpose(0, 1).contiguous().transpose(0, 1), small));
}
