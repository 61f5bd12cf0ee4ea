#include "evaluator/models/whole_vectors.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>

#include <catch2/catch_test_macros.hpp>

using namespace evalcar;

namespace {

models::GatedLayer layer_of(std::int64_t width, std::int64_t inner, bool bias) {
  const auto linear = [&](std::int64_t outputs, std::int64_t inputs) {
    return kernels::LinearWeights{at::randn({outputs, inputs}),
                                  bias ? at::randn({outputs}) : at::Tensor(), at::Tensor()};
  };
  return {.gate_up = linear(2 * inner, width), .down = linear(width, inner)};
}

at::Tensor result_of(const models::GatedLayer& layer, const at::Tensor& x) {
  return kernels::linear_reference(kernels::gated_linear_reference(x, layer.gate_up), layer.down);
}

}  // namespace

TEST_CASE("a layer that is filled up to whole vectors gives what it gave") {
  for (const std::int64_t inner : {1, 12, 52, 3420}) {
    for (const bool bias : {false, true}) {
      CAPTURE(inner, bias);
      const models::GatedLayer layer = layer_of(40, inner, bias);
      const at::Tensor x = at::randn({5, 40});

      const models::GatedLayer filled = models::in_whole_vectors(layer);

      CHECK(filled.down.weight.size(1) % 8 == 0);
      CHECK(filled.down.weight.size(1) - inner < 8);
      CHECK(filled.gate_up.weight.size(0) == 2 * filled.down.weight.size(1));
      CHECK(filled.down.weight.is_contiguous());
      CHECK(at::allclose(result_of(filled, x), result_of(layer, x), 1e-4, 1e-4));
    }
  }
}

TEST_CASE("a layer of whole vectors stays the very tensors") {
  const models::GatedLayer layer = layer_of(16, 24, true);
  const models::GatedLayer same = models::in_whole_vectors(layer);
  CHECK(same.gate_up.weight.is_same(layer.gate_up.weight));
  CHECK(same.down.weight.is_same(layer.down.weight));
}
