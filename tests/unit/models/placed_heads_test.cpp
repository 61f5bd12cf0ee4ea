// kernels/place_heads.h does at once what the decoder does in steps.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "evaluator/kernels/place_heads.h"
#include "evaluator/kernels/rms_norm.h"
#include "evaluator/models/attention.h"
#include "evaluator/models/rotary.h"

using namespace evalcar;
using namespace evalcar::models;

namespace {

constexpr std::int64_t kHeads = 6, kKvHeads = 2, kDim = 64;
constexpr double kEps = 1e-6;

// The end of one sequence, and another from its first token on.
const std::vector<Segment> kSegments = {{.slot = 1, .start = 4, .length = 3, .row = 0},
                                        {.slot = 0, .start = 0, .length = 5, .row = 3}};

KvCache cache_of(at::ScalarType type) {
  const at::Tensor zeros = at::zeros({1, 2, 9, kKvHeads, kDim}, at::TensorOptions().dtype(type));
  return {zeros.clone(), zeros.clone()};
}

at::Tensor normed(const at::Tensor& x, const at::Tensor& weight) {
  return kernels::rms_norm(x.reshape({-1, kDim}), weight, kEps).view(x.sizes());
}

bool are_near(const at::Tensor& a, const at::Tensor& b) {
  // In float32 a sum of squares runs in another order; in bfloat16 both are by ATen's operations.
  return a.scalar_type() == at::kFloat ? at::allclose(a, b, 1e-5, 1e-6) : at::equal(a, b);
}

}  // namespace

TEST_CASE("heads that are placed at once stand in the cache as those that the decoder turns") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor qkv = at::randn({8, kHeads + 2 * kKvHeads, kDim}).to(type);
    const at::Tensor q_norm = at::randn({kDim}).to(type), k_norm = at::randn({kDim}).to(type);
    const RotaryAngles turn = rotary_angles(at::rand({8, kDim / 2}).mul_(50), type);
    KvCache in_steps = cache_of(type), at_once = cache_of(type);

    const at::Tensor q = rotate(normed(qkv.narrow(1, 0, kHeads), q_norm), turn);
    const at::Tensor k = rotate(normed(qkv.narrow(1, kHeads, kKvHeads), k_norm), turn);
    const at::Tensor v = qkv.narrow(1, kHeads + kKvHeads, kKvHeads);
    CachedAttention(kSegments, in_steps, AttentionKind::kSdpa).attend(0, q, k, v);
    const at::Tensor placed = kernels::place_heads_reference(
        {.qkv = qkv,
         .q_norm = q_norm,
         .k_norm = k_norm,
         .eps = kEps,
         .cos = turn.cos,
         .sin = turn.sin,
         .heads = kHeads},
        {.slots = at::tensor(std::vector<std::int64_t>{1, 1, 1, 0, 0, 0, 0, 0}),
         .places = at::tensor(std::vector<std::int64_t>{4, 5, 6, 0, 1, 2, 3, 4}),
         .keys = at_once.keys.select(0, 0),
         .values = at_once.values.select(0, 0)});

    CAPTURE(type);
    CHECK(are_near(placed, q));
    CHECK(are_near(at_once.keys, in_steps.keys));
    CHECK(at::equal(at_once.values, in_steps.values));
  }
}
