// Kernels of which each needs what the one before wrote, with and without waiting on the host.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "evaluator/kernels/decode_attention.h"
#include "evaluator/kernels/few_rows.h"
#include "evaluator/kernels/place_heads.h"
#include "evaluator/kernels/rms_norm.h"
#include "evaluator/kernels/token_scores.h"

using namespace evalcar::kernels;

namespace {

constexpr std::int64_t kHeads = 16, kKvHeads = 8, kDim = 128, kWidth = kHeads * kDim;
constexpr std::int64_t kInner = 3 * kWidth, kVocab = 32000, kKeys = 700;

at::TensorOptions options() { return at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16); }

at::Tensor matrix(std::int64_t outputs, std::int64_t width) {
  return at::randn({outputs, width}, options()) / std::sqrt(static_cast<double>(width));
}

// The decoder of a model, a token at a time: each layer a norm, qkv, the heads' placing, attention
// in one split or several, and a gated pair of products.
struct Chain {
  std::vector<LinearWeights> qkv, o, gate_up, down;
  at::Tensor norm = at::randn({kWidth}, options());
  at::Tensor head_norm = at::randn({kDim}, options());
  LinearWeights head{matrix(kVocab, kWidth), {}, {}};
  at::Tensor keys, values, cos, sin;

  explicit Chain(std::int64_t layers) {
    for (std::int64_t i = 0; i < layers; ++i) {
      qkv.push_back({matrix((kHeads + 2 * kKvHeads) * kDim, kWidth), {}, {}});
      o.push_back({matrix(kWidth, kWidth), {}, {}});
      gate_up.push_back({matrix(2 * kInner, kWidth), {}, {}});
      down.push_back({matrix(kWidth, kInner), {}, {}});
    }
    keys = at::randn({layers, 1, kKeys, kKvHeads, kDim}, options());
    values = at::randn({layers, 1, kKeys, kKvHeads, kDim}, options());
    cos = at::randn({1, 1, kDim / 2}, options());
    sin = at::randn({1, 1, kDim / 2}, options());
  }

  // What `steps` tokens leave; after each kernel `after` is called.
  std::vector<at::Tensor> run(const at::Tensor& first, std::int64_t steps, const auto& after) {
    const auto longs = options().dtype(at::kLong);
    const at::Tensor slot = at::zeros({1}, longs), places = at::arange(kKeys, longs);
    at::Tensor cached_keys = keys.clone(), cached_values = values.clone(), x = first.clone();
    const auto product = [&](const LinearWeights& weights, const at::Tensor& from,
                             RowsResult result, const at::Tensor& y) {
      multiply_few_rows(from, weights, result, y);
      after();
      return y;
    };
    const auto normed = [&](const at::Tensor& from) {
      at::Tensor y = rms_norm(from, norm, 1e-6);
      after();
      return y;
    };
    std::vector<at::Tensor> told;
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::int64_t place = kKeys - steps + step;
      const DecodeSight sight = decode_sight(
          std::vector<SeenKeys>{{.begin = step % 2 * 600, .end = place + 1}}, at::kCUDA);
      for (std::size_t i = 0; i < qkv.size(); ++i) {
        const auto layer = static_cast<std::int64_t>(i);
        const CachePlace to{.slots = slot,
                            .places = places.narrow(0, place, 1),
                            .keys = cached_keys.select(0, layer),
                            .values = cached_values.select(0, layer)};
        const at::Tensor rows = product(qkv[i], normed(x), RowsResult::kStored,
                                        at::empty({1, (kHeads + 2 * kKvHeads) * kDim}, options()));
        const at::Tensor q = place_heads({.qkv = rows.view({1, -1, kDim}),
                                          .q_norm = head_norm,
                                          .k_norm = head_norm,
                                          .eps = 1e-6,
                                          .cos = cos,
                                          .sin = sin,
                                          .heads = kHeads},
                                         to);
        after();
        const at::Tensor mixed = decode_attention(q, to.keys, to.values, sight);
        after();
        product(o[i], mixed.view({1, kWidth}), RowsResult::kAdded, x);
        const at::Tensor gated =
            product(gate_up[i], normed(x), RowsResult::kGated, at::empty({1, kInner}, options()));
        product(down[i], gated, RowsResult::kAdded, x);
      }
      const at::Tensor scores =
          product(head, normed(x), RowsResult::kStored, at::empty({1, kVocab}, options()));
      told.push_back(best_tokens(scores).tokens.clone());
      after();
      told.push_back(x.clone());
      x = x / 2;  // an operation of ATen's between
    }
    told.push_back(cached_keys);
    told.push_back(cached_values);
    return told;
  }
};

}  // namespace

TEST_CASE("kernels that begin while the one before still runs see all that it wrote") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  const c10::InferenceMode inference;
  Chain chain(6);
  const at::Tensor first = at::randn({1, kWidth}, options());
  const c10::impl::VirtualGuardImpl device(at::kCUDA);

  const auto expected =
      chain.run(first, 20, [&] { device.synchronizeStream(device.getStream(first.device())); });
  REQUIRE(at::isfinite(expected.at(expected.size() - 3)).all().item<bool>());
  for (int repeat = 0; repeat < 10; ++repeat) {
    const auto got = chain.run(first, 20, [] {});
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      CAPTURE(repeat, i);
      CHECK(at::equal(got[i], expected[i]));
    }
  }
}
