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

TEST_CASE("a still picture's embedding is what the convolution over its frames gives") {
  for (const std::int64_t frames : {1, 2, 3}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      INFO(frames << " frames, " << at::toString(type));
      const at::Tensor kernel = kernel_of(frames).to(type);
      const at::Tensor patches = at::randn({500, kChannels, 1, kPatch, kPatch}).to(type);
      const at::Tensor expected =
          at::conv3d(patches.expand({-1, kChannels, frames, kPatch, kPatch}).to(at::kDouble),
                     kernel.to(at::kDouble))
              .flatten(1);

      const at::Tensor still = still_kernel(kernel.view({kHidden, -1}), kChannels, frames);
      const at::Tensor given = still_patches(patches.flatten(1).to(at::kFloat), still, kChannels);
      const at::Tensor found = at::linear(given, still);

      CHECK(still.scalar_type() == type);
      if (type == at::kFloat) {
        CHECK(still.sizes() == at::IntArrayRef{kHidden, kChannels * kPatch * kPatch});
        // Sums of 588 · frames products of about 1 in float32: its last bits, of numbers below 300.
        CHECK((found - expected).abs().max().item<double>() < 1e-3);
      } else {
        // Rounded once, at the end: all but ties and their neighbours are the nearest bfloat16.
        const at::Tensor nearest = expected.to(at::kFloat).to(at::kBFloat16);
        CHECK((found != nearest).to(at::kFloat).mean().item<double>() < 0.01);
      }
    }
  }
}

TEST_CASE("the resident weight stays as it is") {
  const at::Tensor weight = kernel_of(2).view({kHidden, -1});
  const at::Tensor before = weight.clone();

  const at::Tensor folded = still_kernel(weight, kChannels, 2);

  CHECK(at::equal(weight, before));
  CHECK_FALSE(folded.is_alias_of(weight));
}
