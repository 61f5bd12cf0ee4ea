#include "tests/gpu/kernel_bench.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "evaluator/kernels/decode_attention.h"
#include "evaluator/kernels/few_rows.h"
#include "evaluator/kernels/place_heads.h"
#include "evaluator/kernels/rms_norm.h"
#include "evaluator/kernels/rotate_heads.h"
#include "evaluator/kernels/swiglu.h"
#include "evaluator/kernels/token_scores.h"
#include "evaluator/kernels/window_attention.h"

namespace evalcar::testing {
namespace {

using namespace evalcar::kernels;
using Call = std::function<at::Tensor()>;

constexpr std::int64_t kHeads = 28, kKvHeads = 4, kDim = 128, kWidth = 3584, kInner = 18944;
constexpr std::int64_t kVocab = 152064, kItem = 2;  // bytes of a bfloat16

at::TensorOptions options() { return at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16); }

// Of one call, among many; the medians of alternating runs.
double seconds_of(const Call& call) {
  constexpr int kCalls = 100;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 1; i < kCalls; ++i) call();
  (void)call().sum().item<float>();  // waits for the device
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kCalls;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void bench(const std::string& name, std::int64_t bytes, const Call& kernel, const Call& aten = {}) {
  std::vector<double> ours, theirs;
  for (int repeat = 0; repeat < 7; ++repeat) {
    ours.push_back(seconds_of(kernel));
    if (aten) theirs.push_back(seconds_of(aten));
  }
  std::cout << name << ": " << median(ours) * 1e6 << " us, "
            << static_cast<double>(bytes) / median(ours) * 1e-9 << " GB/s";
  if (aten)
    std::cout << "; ATen " << median(theirs) * 1e6 << " us: ratio "
              << median(theirs) / median(ours);
  std::cout << "\n";
}

void bench_rms_norm(std::int64_t rows) {
  const at::Tensor x = at::randn({rows, kWidth}, options());
  const at::Tensor weight = at::randn({kWidth}, options());
  bench(
      "rms_norm, " + std::to_string(rows) + " rows", 2 * x.numel() * kItem,
      [&] { return rms_norm(x, weight, 1e-6); },
      [&] { return rms_norm_reference(x, weight, 1e-6); });
}

// Of a vision tower: 16 heads of 80.
void bench_rotate_heads(std::int64_t rows) {
  const at::Tensor x = at::randn({rows, 3, 16, 80}, options()).select(1, 0);
  const at::Tensor angles = at::randn({rows, 1, 40}, options().dtype(at::kFloat));
  bench(
      "rotate_heads, " + std::to_string(rows) + " rows",
      2 * x.numel() * kItem + 2 * angles.numel() * 4,
      [&] { return rotate_heads(x, angles, angles); },
      [&] { return rotate_heads_reference(x, angles, angles); });
}

// Of a vision tower: 16 heads of 80, values among queries and keys; libtorch's flash attention over
// windows that are all of one size.
void bench_window_attention(std::int64_t rows, std::int64_t length) {
  const at::Tensor qkv = at::randn({rows, 3, 16, 80}, options());
  const at::Tensor q = qkv.select(1, 0).contiguous(), k = qkv.select(1, 1).contiguous();
  const at::Tensor v = qkv.select(1, 2), out = at::empty({rows, 16 * 80}, options());
  std::vector<std::int64_t> begins;
  for (std::int64_t row = 0; row <= rows; row += length) begins.push_back(row);
  const Windows windows = windows_at(begins, q.device());
  const auto blocks = [&](const at::Tensor& x) {
    return x.unflatten(0, {rows / length, length}).transpose(1, 2);
  };
  bench(
      "window_attention, " + std::to_string(rows) + " rows in windows of " + std::to_string(length),
      4 * q.numel() * kItem,
      [&] {
        window_attention(q, k, v, windows, out);
        return out;
      },
      [&] { return at::scaled_dot_product_attention(blocks(q), blocks(k), blocks(v)); });
}

void bench_decode_attention(std::int64_t rows, std::int64_t keys) {
  const at::Tensor q = at::randn({rows, kHeads, kDim}, options());
  const at::Tensor k = at::randn({rows, keys, kKvHeads, kDim}, options());
  const at::Tensor v = at::randn({rows, keys, kKvHeads, kDim}, options());
  const std::vector<SeenKeys> seen(static_cast<std::size_t>(rows), {.begin = 0, .end = keys});
  const DecodeSight sight = decode_sight(seen, q.device());
  bench("decode_attention, " + std::to_string(rows) + " rows of " + std::to_string(keys) + " keys",
        2 * k.numel() * kItem, [&] { return decode_attention(q, k, v, sight); });
}

void bench_place_heads(std::int64_t rows) {
  const auto longs = options().dtype(at::kLong);
  const at::Tensor number = at::arange(rows, longs);
  const PackedHeads heads{.qkv = at::randn({rows, kHeads + 2 * kKvHeads, kDim}, options()),
                          .q_norm = at::randn({kDim}, options()),
                          .k_norm = at::randn({kDim}, options()),
                          .eps = 1e-6,
                          .cos = at::randn({rows, 1, kDim / 2}, options()),
                          .sin = at::randn({rows, 1, kDim / 2}, options()),
                          .heads = kHeads};
  const CachePlace place{.slots = at::zeros({rows}, longs),
                         .places = number,
                         .keys = at::zeros({1, rows, kKvHeads, kDim}, options()),
                         .values = at::zeros({1, rows, kKvHeads, kDim}, options())};
  bench(
      "place_heads, " + std::to_string(rows) + " rows", 2 * heads.qkv.numel() * kItem,
      [&] { return place_heads(heads, place); },
      [&] { return place_heads_reference(heads, place); });
}

void bench_swiglu(std::int64_t rows) {
  const at::Tensor both = at::randn({rows, 2 * kInner}, options());
  bench(
      "swiglu, " + std::to_string(rows) + " rows", 3 * both.numel() / 2 * kItem,
      [&] { return swiglu(both); }, [&] { return swiglu_reference(both); });
}

// Of the products of a model as wide as a 7B, and of one of 1.7B; another matrix each time, so that
// none is in the L2 cache.
void bench_few_rows(std::int64_t rows, std::int64_t outputs, std::int64_t width) {
  constexpr std::int64_t kMatrices = 8;
  const at::Tensor x = at::randn({rows, width}, options());
  const at::Tensor matrices = at::randn({kMatrices, outputs, width}, options());
  std::int64_t number = 0;
  const auto next = [&] { return LinearWeights{matrices.select(0, number++ % kMatrices), {}, {}}; };
  bench(
      "few_rows, " + std::to_string(rows) + " rows, " + std::to_string(outputs) + " x " +
          std::to_string(width),
      outputs * width * kItem,
      [&] {
        const at::Tensor y = at::empty({rows, outputs}, options());
        multiply_few_rows(x, next(), RowsResult::kStored, y);
        return y;
      },
      [&] { return linear_reference(x, next()); });
}

void bench_best_tokens(std::int64_t rows) {
  const at::Tensor scores = at::randn({rows, kVocab}, options());
  bench(
      "best_tokens, " + std::to_string(rows) + " rows", scores.numel() * kItem,
      [&] { return best_tokens(scores).scores; },
      [&] { return best_tokens_reference(scores).scores; });
}

void bench_score_tokens(std::int64_t rows) {
  const at::Tensor hidden = at::randn({rows, kWidth}, options());
  const LinearWeights head{at::randn({kVocab, kWidth}, options()), {}, {}};
  const at::Tensor number = at::arange(rows, options().dtype(at::kLong));
  const AskedTokens asked{number, number};
  // The product's: of the bytes only the head's have to move.
  bench(
      "score_tokens, " + std::to_string(rows) + " rows", head.weight.numel() * kItem,
      [&] { return score_tokens(hidden, head, asked).log_likelihoods; },
      [&] { return score_tokens_reference(hidden, head, asked).log_likelihoods; });
}

}  // namespace

void bench_kernels() {
  for (const std::int64_t rows : {1, 64, 4096, 32768}) bench_rms_norm(rows);
  for (const std::int64_t rows : {64, 8192, 65536}) bench_rotate_heads(rows);
  for (const std::int64_t length : {64, 32}) bench_window_attention(32768, length);
  // What is read more than once would come from the L2 cache: 64 rows of 4096 keys are 537 MB.
  for (const std::int64_t rows : {1, 16, 64}) bench_decode_attention(rows, 4096);
  for (const std::int64_t rows : {1, 64, 4096, 32768}) bench_place_heads(rows);
  for (const std::int64_t rows : {1, 64, 4096}) bench_swiglu(rows);
  for (const std::int64_t rows : {1, 2, 4}) {
    bench_few_rows(rows, 2 * kInner, kWidth);
    bench_few_rows(rows, kWidth, kInner);
    bench_few_rows(rows, 4096, 2048);
    bench_few_rows(rows, 2048, 6144);
  }
  for (const std::int64_t rows : {1, 64}) bench_best_tokens(rows);
  bench_score_tokens(1024);
}

}  // namespace evalcar::testing
