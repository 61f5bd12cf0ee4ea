#include "evaluator/models/patch_embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>

#include <catch2/catch_test_macros.hpp>

using namespace evalcar::models;

namespace {
constexpr std::int64_t kHidden = 24, kChannels = 3, kPatch = 14;

/// (hidden, channels, frames, patch, patch) float32, as a checkpoint holds it.
at::Tensor kernel_of(std::int64_t frames) {
  return at::randn({kHidden, kChannels, frames, kPatch, kPatch});
}
}  // namespace

TEST_CASE("a folded embedding gives a still picture what the convolution over its frames gives") {
  for (const std::int64_t frames : {1, 2, 3}) {
    const at::Tensor kernel = kernel_of(frames);
    const at::Tensor patches = at::randn({5, kChannels, 1, kPatch, kPatch});
    const at::Tensor expected =
        at::conv3d(patches.expand({5, kChannels, frames, kPatch, kPatch}).to(at::kDouble),
                   kernel.to(at::kDouble))
            .flatten(1);

    const at::Tensor folded = fold_frames(kernel.view({kHidden, -1}), kChannels, frames);
    const at::Tensor found = at::linear(patches.flatten(1), folded);

    REQUIRE(folded.sizes() == at::IntArrayRef{kHidden, kChannels * kPatch * kPatch});
    // Sums of 588 · frames products of about 1 in float32: its last bits, of numbers below 150.
    CHECK((found - expected).abs().max().item<double>() < 1e-4);
  }
}

TEST_CASE("frames of bfloat16 are added exactly and rounded once") {
  const at::Tensor kernel = kernel_of(3).to(at::kBFloat16);
  const auto frame = [&](std::int64_t t) { return kernel.select(2, t).to(at::kFloat); };
  const at::Tensor once = (frame(0) + frame(1) + frame(2)).flatten(1).to(at::kBFloat16);
  const at::Tensor at_each_step =
      (kernel.select(2, 0) + kernel.select(2, 1) + kernel.select(2, 2)).flatten(1);

  const at::Tensor folded = fold_frames(kernel.view({kHidden, -1}), kChannels, 3);

  CHECK(folded.scalar_type() == at::kBFloat16);
  CHECK(at::equal(folded, once));
  CHECK_FALSE(at::equal(folded, at_each_step));
}

TEST_CASE("folding leaves the resident weight as it is") {
  const at::Tensor weight = kernel_of(2).view({kHidden, -1});
  const at::Tensor before = weight.clone();

  const at::Tensor folded = fold_frames(weight, kChannels, 2);

  CHECK(at::equal(weight, before));
  CHECK_FALSE(folded.is_alias_of(weight));
}
