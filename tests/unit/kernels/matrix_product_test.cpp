#include "evaluator/kernels/matrix_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sum.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>
#include <vector>

#include "evaluator/kernels/panel_product.h"
#include "evaluator/kernels/panel_unit.h"
#include "evaluator/kernels/tile_product.h"
#include "evaluator/kernels/tile_unit.h"

using namespace evalcar::kernels;

namespace {

/// The tile unit, or kernels of panels.
struct Unit {
  const PanelKernels* panels = nullptr;
  std::string name() const { return panels == nullptr ? "tiles" : panels->name; }
};

std::vector<Unit> units() {
  std::vector<Unit> there;
  if (has_tile_unit()) there.push_back({});
  for (const PanelKernels& kernels : panel_kernels()) there.push_back({&kernels});
  if (there.empty()) SKIP("this CPU has no unit for many rows");
  return there;
}

template <typename Weight>
void multiply(const Unit& unit, const MatrixProduct<Weight>& product, bool packed) {
  at::Tensor memory;
  if (unit.panels == nullptr) {
    if (packed) {
      memory = at::empty({packed_bytes(product)}, at::kByte);
      pack_matrix(product, 0, product.outputs, static_cast<char*>(memory.mutable_data_ptr()));
    }
    multiply_by_tiles(product, packed ? static_cast<char*>(memory.mutable_data_ptr()) : nullptr);
  } else {
    if (packed) {
      memory = at::empty({panel_floats(product)});
      pack_panels(product, 0, product.outputs, memory.mutable_data_ptr<float>());
    }
    multiply_by_panels(product, packed ? memory.const_data_ptr<float>() : nullptr, *unit.panels);
  }
}

// y = x · wᵀ + bias. w: (outputs, width) float32 or bfloat16; bias may be undefined.
template <typename Weight>
MatrixProduct<Weight> product_to(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w,
                                 const at::Tensor& bias) {
  return {.x = x.const_data_ptr<float>(),
          .x_stride = x.stride(0),
          .rows = x.size(0),
          .w = static_cast<const Weight*>(w.const_data_ptr()),
          .outputs = w.size(0),
          .width = w.size(1),
          .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
          .y = y.mutable_data_ptr<float>(),
          .y_stride = w.size(0)};
}

template <typename Weight>
at::Tensor product_of(const Unit& unit, const at::Tensor& x, const at::Tensor& w,
                      const at::Tensor& bias, bool packed) {
  const at::Tensor y = at::full({x.size(0), w.size(0)}, -7.0, x.options());
  multiply(unit, product_to<Weight>(y, x, w, bias), packed);
  return y;
}

double root_mean_square(const at::Tensor& x) { return x.pow(2).mean().sqrt().item<double>(); }

}  // namespace

TEST_CASE("sums are as near to the true ones as the BLAS's") {
  for (const Unit& unit : units()) {
    CAPTURE(unit.name());
    for (const std::int64_t width : {64, 384, 1536}) {
      const at::Tensor x = at::randn({96, width});
      const at::Tensor w = at::randn({160, width});
      const at::Tensor exact = at::linear(x.to(at::kDouble), w.to(at::kDouble));

      const at::Tensor ours = product_of<float>(unit, x, w, {}, true) - exact;
      const at::Tensor theirs = at::linear(x, w) - exact;

      CAPTURE(width, root_mean_square(ours), root_mean_square(theirs));
      CHECK(root_mean_square(ours) < 1.25 * root_mean_square(theirs));
      CHECK(ours.abs().max().item<double>() < 2 * theirs.abs().max().item<double>());
    }
  }
}

TEST_CASE("a product of single numbers has no larger error than float32's last bit") {
  for (const Unit& unit : units()) {
    CAPTURE(unit.name());
    const at::Tensor x = at::randn({512, 1}) * 1e3;
    const at::Tensor w = at::randn({512, 1}) * 1e-3;

    const at::Tensor y = product_of<float>(unit, x, w, {}, true);

    const at::Tensor exact = at::linear(x.to(at::kDouble), w.to(at::kDouble));
    CHECK(((y - exact) / exact).abs().max().item<double>() <= 0x1.0p-23);
  }
}

TEST_CASE("rows, outputs and widths that fill no block are multiplied like those that do") {
  for (const Unit& unit : units()) {
    CAPTURE(unit.name());
    for (const auto& [rows, outputs, width] : {std::array<std::int64_t, 3>{1, 1, 1},
                                               {31, 33, 31},
                                               {33, 47, 65},
                                               {60, 50, 260},
                                               {700, 16, 390}}) {
      const at::Tensor x = at::randn({rows, width});
      const at::Tensor w = at::randn({outputs, width}).to(at::kBFloat16);
      const at::Tensor wide = w.to(at::kFloat);
      const at::Tensor bias = at::randn({outputs});
      const at::Tensor exact =
          at::linear(x.to(at::kDouble), wide.to(at::kDouble), bias.to(at::kDouble));
      for (const bool packed : {false, true}) {
        CAPTURE(rows, outputs, width, packed);
        const at::Tensor y = product_of<float>(unit, x, wide, bias, packed);
        const at::Tensor from_half = product_of<std::uint16_t>(unit, x, w, bias, packed);

        CHECK((y - exact).abs().max().item<double>() < 5e-5);
        CHECK((from_half - exact).abs().max().item<double>() < 5e-5);
      }
    }
  }
}

TEST_CASE("a row's sums have the same bits whatever the rows beside, and however it is packed") {
  for (const Unit& unit : units()) {
    CAPTURE(unit.name());
    const at::Tensor x = at::randn({100, 200});
    const at::Tensor w = at::randn({70, 200});
    const at::Tensor all = product_of<float>(unit, x, w, {}, true);

    CHECK(at::equal(product_of<float>(unit, x, w, {}, false), all));
    for (const std::int64_t row : {0, 15, 40, 99})
      CHECK(at::equal(product_of<float>(unit, x.narrow(0, row, 1), w, {}, true),
                      all.narrow(0, row, 1)));
  }
}

TEST_CASE("what is no finite number in a row is none in its sums, and in no other row's") {
  for (const Unit& unit : units()) {
    CAPTURE(unit.name());
    at::Tensor x = at::randn({40, 64});
    x.select(0, 3).select(0, 7).fill_(std::numeric_limits<float>::quiet_NaN());
    x.select(0, 20).select(0, 1).fill_(std::numeric_limits<float>::infinity());

    const at::Tensor none =
        product_of<float>(unit, x, at::randn({50, 64}), {}, true).isfinite().logical_not().sum(1);

    CHECK(none.select(0, 3).item<std::int64_t>() == 50);
    CHECK(none.select(0, 20).item<std::int64_t>() == 50);
    CHECK(none.sum().item<std::int64_t>() == 100);
  }
}

TEST_CASE("a product is added to what is there, or gated by another of the same rows") {
  for (const Unit& unit : units()) {
    for (const auto& [rows, outputs, width] : {std::array<std::int64_t, 3>{5, 3, 7},
                                               {20, 16, 64},
                                               {20, 63, 600},
                                               {130, 37, 300},
                                               {130, 54, 300}}) {
      const at::Tensor x = at::randn({rows, width}) * 0.2;
      const at::Tensor w = at::randn({outputs, width}), gate = at::randn({outputs, width});
      const at::Tensor bias = at::randn({outputs}), gate_bias = at::randn({outputs});
      const at::Tensor product = at::linear(x, w, bias);
      for (const bool packed : {false, true}) {
        CAPTURE(unit.name(), rows, outputs, width, packed);
        const at::Tensor y = at::full({rows, outputs}, 3.0);
        auto asked = product_to<float>(y, x, w, bias);
        asked.adds = true;
        multiply(unit, asked, packed);
        CHECK((y - (product + 3.0)).abs().max().item<double>() < 5e-5);

        asked.adds = false;
        asked.gate = gate.const_data_ptr<float>();
        asked.gate_bias = gate_bias.const_data_ptr<float>();
        multiply(unit, asked, packed);
        const at::Tensor expected = at::silu(at::linear(x, gate, gate_bias)) * product;
        CHECK(((y - expected).abs() / (expected.abs() + 1)).max().item<double>() < 5e-5);
      }
    }
  }
}
