#include "evaluator/kernels/window_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/all.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/randn.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "evaluator/kernels/decode_attention_block.h"
#include "evaluator/kernels/window_attention_block.h"
#include "tests/unit/kernels/emulated_block.h"
#include "tests/unit/kernels/fenced_tensor.h"

using namespace evalcar::kernels;
using evalcar::testing::EmulatedBlock;
using evalcar::testing::ThreadOrder;
namespace testing = evalcar::testing;

namespace {

struct Rows {
  at::Tensor q, k, v;
  std::vector<std::int64_t> begins;

  at::Tensor unset() const {
    return at::full({q.size(0), q.size(1) * q.size(2)}, NAN, q.options());
  }
  at::Tensor by_reference() const {
    at::Tensor out = unset();
    window_attention_reference(q, k, v, begins, out);
    return out;
  }
};

template <int kDim>
void run(const WindowAttention& a, std::int64_t windows, ThreadOrder order) {
  for (std::int64_t window = 0; window < windows; ++window) {
    for (std::int64_t head = 0; head < a.heads; ++head) {
      EmulatedBlock<typename WindowShape<kDim>::Own> block(kWindowThreads, order);
      attend_window<kDim>(a, window, head, block);
    }
  }
}

// As the blocks of the grid do it.
at::Tensor emulated(const Rows& rows, ThreadOrder order = ThreadOrder::kForwards) {
  const at::Tensor out = rows.unset();
  const Windows windows = windows_at(rows.begins, at::kCPU);
  REQUIRE(windows.most <= kMostWindow);
  const auto data = [](const at::Tensor& x) {
    return static_cast<BFloat16*>(x.mutable_data_ptr());
  };
  const WindowAttention a{.q = data(rows.q),
                          .k = data(rows.k),
                          .v = data(rows.v),
                          .q_stride = rows.q.stride(0),
                          .k_stride = rows.k.stride(0),
                          .v_stride = rows.v.stride(0),
                          .begins = windows.begins.const_data_ptr<std::int32_t>(),
                          .heads = rows.q.size(1),
                          .scale = decode_scale(rows.q.size(2)),
                          .out = data(out)};
  const std::int64_t count = windows.begins.numel() - 1;
  rows.q.size(2) == 64 ? run<64>(a, count, order) : run<80>(a, count, order);
  return out;
}

// Values among queries and keys, as a fused projection gives them; what is in no window is NaN.
Rows rows_of(std::int64_t heads, std::int64_t dim, const std::vector<std::int64_t>& lengths) {
  Rows rows;
  rows.begins.push_back(3);
  for (const std::int64_t length : lengths) rows.begins.push_back(rows.begins.back() + length);
  const std::int64_t count = rows.begins.back() + 2;
  const auto within = [&](const at::Tensor& x) {
    x.narrow(0, 0, 3).fill_(NAN);
    x.narrow(0, count - 2, 2).fill_(NAN);
    return x;
  };
  rows.q = within(at::randn({count, heads, dim}).mul_(2.0).to(at::kBFloat16));
  rows.k = within(at::randn({count, heads, dim}).to(at::kBFloat16));
  rows.v = within(at::randn({count, 3, heads, dim}).to(at::kBFloat16)).select(1, 2);
  return rows;
}

at::Tensor inside(const Rows& rows, const at::Tensor& x) {
  return x.narrow(0, rows.begins.front(), rows.begins.back() - rows.begins.front());
}

const std::vector<std::int64_t> kLengths = {1, 64, 2, 7, 8, 9, 15, 16, 17, 32, 33, 48, 63, 64};

}  // namespace

TEST_CASE("attention in windows gives its ATen version's values, for windows of any length") {
  for (const std::int64_t dim : {64, 80}) {
    for (const std::int64_t heads : {1, 3}) {
      CAPTURE(dim, heads);
      const Rows rows = rows_of(heads, dim, kLengths);
      const at::Tensor got = emulated(rows), wanted = rows.by_reference();
      const at::Tensor expected = inside(rows, wanted).to(at::kFloat);
      const at::Tensor error = (inside(rows, got).to(at::kFloat) - expected).abs();
      // Half a unit of the last place of the result, and of each power.
      const float largest = expected.abs().max().item<float>();
      CHECK(error.max().item<float>() <= 7e-3F * largest);
      CHECK(error.mean().item<float>() <= 1.5e-3F * expected.abs().mean().item<float>());
      CHECK(at::isnan(got.narrow(0, 0, 3)).all().item<bool>());  // not written
      CHECK(at::isnan(got.narrow(0, got.size(0) - 2, 2)).all().item<bool>());
    }
  }
}

TEST_CASE("each number of attention in windows comes from its own key, value and query") {
  // Where one key alone counts, the result is its value, bit by bit.
  for (const std::int64_t dim : {64, 80}) {
    const Rows rows = rows_of(2, dim, {64, 40, 5});
    rows.q.zero_();
    rows.k.zero_();
    for (std::size_t window = 0; window + 1 < rows.begins.size(); ++window) {
      const std::int64_t first = rows.begins[window], count = rows.begins[window + 1] - first;
      for (std::int64_t row = 0; row < count; ++row) {  // row i seeks key (7 i + 3) mod count
        const std::int64_t key = (7 * row + 3) % count;
        for (std::int64_t bit = 0; bit < 6; ++bit) {
          // Numbers from everywhere in the head.
          const std::int64_t at = bit * (dim - 1) / 5;
          rows.q.select(0, first + row).select(1, at).fill_((key >> bit & 1) != 0 ? 99 : -99);
          rows.k.select(0, first + row).select(1, at).fill_((row >> bit & 1) != 0 ? 9 : -9);
        }
      }
    }
    const at::Tensor got = emulated(rows);
    for (std::size_t window = 0; window + 1 < rows.begins.size(); ++window) {
      const std::int64_t first = rows.begins[window], count = rows.begins[window + 1] - first;
      for (std::int64_t row = 0; row < count; ++row) {
        CAPTURE(dim, window, row);
        CHECK(at::equal(got.select(0, first + row),
                        rows.v.select(0, first + (7 * row + 3) % count).reshape({-1})));
      }
    }
  }
}

TEST_CASE("attention in windows reads nothing behind the last one") {
  for (const std::int64_t dim : {64, 80}) {
    for (const std::int64_t last : {1, 9, 31, 50}) {
      CAPTURE(dim, last);
      Rows rows = rows_of(2, dim, {64, last});
      const at::Tensor expected = emulated(rows);
      const auto fenced = [&](const at::Tensor& x) {
        return testing::before_a_fence(x.narrow(0, 0, rows.begins.back()).contiguous());
      };
      Rows cut{fenced(rows.q), fenced(rows.k), fenced(rows.v), rows.begins};
      CHECK(at::equal(inside(rows, emulated(cut)), inside(rows, expected)));
    }
  }
}

TEST_CASE("no thread of attention in windows needs what another does in the same phase") {
  const Rows rows = rows_of(2, 80, kLengths);
  CHECK(at::equal(inside(rows, emulated(rows)),
                  inside(rows, emulated(rows, ThreadOrder::kBackwards))));
}

TEST_CASE("a number that is none spoils its own window and head alone") {
  for (const int which : {0, 1, 2}) {
    Rows rows = rows_of(3, 80, {20, 64, 33});
    const at::Tensor& spoilt = which == 0 ? rows.q : which == 1 ? rows.k : rows.v;
    spoilt.select(0, rows.begins[1] + 9).select(0, 1).fill_(NAN);

    const at::Tensor nan = at::isnan(inside(rows, emulated(rows))).view({-1, 3, 80});

    CAPTURE(which);
    CHECK(nan.narrow(0, 20, 64).select(1, 1).any().item<bool>());
    CHECK(nan.sum().item<std::int64_t>() == (which == 0 ? 80 : 64 * 80));
  }
}

TEST_CASE("the largest of a batch's windows is found") {
  const std::vector<std::int64_t> begins = {0, 5, 69, 70};
  const Windows windows = windows_at(begins, at::kCPU);
  CHECK(windows.most == 64);
  CHECK(windows.begins.numel() == 4);
  CHECK(windows_at(std::vector<std::int64_t>{0}, at::kCPU).most == 0);
}
