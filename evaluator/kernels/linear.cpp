#include "evaluator/kernels/linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "evaluator/kernels/few_rows.h"
#include "evaluator/kernels/many_rows.h"
#include "evaluator/kernels/parallel.h"
#include "evaluator/kernels/row_kernels.h"
#include "evaluator/kernels/row_passes.h"
#include "evaluator/kernels/swiglu.h"

namespace evalcar::kernels {
namespace {

constexpr std::int64_t kPanel = 32;  // outputs that go together
// Values of the matrix for one thread, at least: below, waking another costs more than it brings.
constexpr std::int64_t kGrain = 32768;

enum class Result { kStored, kAdded, kGated };

bool is_for_own_kernels(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && x.dim() == 2;
}

at::Tensor arranged(const at::Tensor& x) {
  const at::Tensor out = at::empty_like(x);
  const float* const from = x.const_data_ptr<float>();
  float* const to = out.mutable_data_ptr<float>();
  for (std::int64_t m = 0; m < x.size(0); ++m)
    row_kernels().front().arrange(from + m * x.size(1), to + m * x.size(1), x.size(1));
  return out;
}

template <typename Weight>
RowProduct<Weight> outputs_of(RowProduct<Weight> whole, std::int64_t first, std::int64_t count) {
  whole.outputs = count;
  whole.w += first * whole.width;
  whole.y += first;
  if (whole.bias != nullptr) whole.bias += first;
  return whole;
}

template <typename Weight>
void multiply(const RowProduct<Weight>& whole, void (*kernel)(const RowProduct<Weight>&)) {
  const std::int64_t panels = (whole.outputs + kPanel - 1) / kPanel;
  in_parallel(panels, kGrain / std::max<std::int64_t>(1, kPanel * whole.width),
              [&](std::int64_t panel, std::int64_t count) {
                const std::int64_t first = panel * kPanel;
                kernel(outputs_of(whole, first, std::min(whole.outputs - first, count * kPanel)));
              });
}

// The gate is the first half of the outputs; y is (rows, half of them).
template <typename Weight>
void multiply_gated(const RowProduct<Weight>& whole, void (*kernel)(const RowProduct<Weight>&)) {
  const std::int64_t inner = whole.outputs / 2, panels = (inner + kPanel - 1) / kPanel;
  in_parallel(panels, kGrain / std::max<std::int64_t>(1, 2 * kPanel * whole.width),
              [&](std::int64_t panel, std::int64_t count) {
                std::vector<float> gates(static_cast<std::size_t>(whole.rows * kPanel));
                for (std::int64_t n = panel * kPanel; n < std::min(inner, (panel + count) * kPanel);
                     n += kPanel) {
                  RowProduct<Weight> gate = outputs_of(whole, n, std::min(kPanel, inner - n));
                  RowProduct<Weight> up = gate;
                  up.w += inner * up.width;
                  if (up.bias != nullptr) up.bias += inner;
                  gate.y = gates.data();
                  gate.stride = kPanel;
                  kernel(gate);
                  kernel(up);
                  for (std::int64_t m = 0; m < whole.rows; ++m)
                    gate_numbers(gate.y + m * gate.stride, up.y + m * up.stride, gate.outputs);
                }
              });
}

template <typename Weight>
MatrixProduct<Weight> matrix_product(const at::Tensor& x, const at::Tensor& matrix,
                                     const at::Tensor& bias, const at::Tensor& y) {
  return {.x = x.const_data_ptr<float>(),
          .x_stride = x.stride(0),
          .rows = x.size(0),
          .w = static_cast<const Weight*>(matrix.const_data_ptr()),
          .outputs = matrix.size(0),
          .width = matrix.size(1),
          .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
          .y = y.mutable_data_ptr<float>(),
          .y_stride = y.stride(0)};
}

template <typename Weight>
void multiply_many(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& bias,
                   Result result, const at::Tensor& y) {
  MatrixProduct<Weight> product = matrix_product<Weight>(x, matrix, bias, y);
  product.adds = result == Result::kAdded;
  if (result == Result::kGated) {
    const MatrixProduct<Weight> gate = product.outputs_from(0, product.outputs / 2);
    product = product.outputs_from(gate.outputs, gate.outputs);
    product.gate = gate.w;
    product.gate_bias = gate.bias;
    product.y = gate.y;
  }
  multiply_many_rows(product);
}

void multiply_many(const at::Tensor& x, const LinearWeights& weights, Result result,
                   const at::Tensor& y) {
  const at::Tensor rows = x.contiguous();
  if (weights.half.defined()) {
    multiply_many<std::uint16_t>(rows, weights.half, weights.bias, result, y);
  } else {
    multiply_many<float>(rows, weights.weight, weights.bias, result, y);
  }
}

std::int64_t most_rows(bool half) {
  const std::int64_t most = row_kernels().front().most_rows;
  return has_many_rows_kernel() ? std::min(most, rows_before_many(half)) : most;
}

bool is_for_row_kernels(const at::Tensor& x, const LinearWeights& weights) {
  return is_for_own_kernels(x) && x.size(0) <= most_rows(weights.half.defined());
}

bool is_for_many(const at::Tensor& x, const LinearWeights& weights) {
  return is_for_own_kernels(x) && !is_for_row_kernels(x, weights) && has_many_rows_kernel();
}

// y: (rows, outputs), or gated (rows, outputs / 2); contiguous.
template <typename Weight>
void multiply_rows(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& bias,
                   Result result, const at::Tensor& y, void (*kernel)(const RowProduct<Weight>&)) {
  const RowProduct<Weight> product{.x = x.const_data_ptr<float>(),
                                   .rows = x.size(0),
                                   .w = static_cast<const Weight*>(matrix.const_data_ptr()),
                                   .outputs = matrix.size(0),
                                   .width = matrix.size(1),
                                   .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                                   .adds = result == Result::kAdded,
                                   .y = y.mutable_data_ptr<float>(),
                                   .stride = y.size(1)};
  result == Result::kGated ? multiply_gated(product, kernel) : multiply(product, kernel);
}

void multiply_rows(const at::Tensor& x, const LinearWeights& weights, Result result,
                   const at::Tensor& y) {
  if (y.numel() == 0) return;
  const RowKernels& kernels = row_kernels().front();
  if (weights.half.defined()) {
    multiply_rows(arranged(x.contiguous()), weights.half, weights.bias, result, y,
                  kernels.multiply_bf16);
  } else {
    multiply_rows(x.contiguous(), weights.weight, weights.bias, result, y, kernels.multiply);
  }
}

}  // namespace

std::int64_t rows_of_one_kernel() { return std::min(most_rows(false), most_rows(true)); }

at::Tensor linear_reference(const at::Tensor& x, const LinearWeights& weights) {
  return at::linear(x, weights.weight,
                    weights.bias.defined() ? std::optional(weights.bias) : std::nullopt);
}

at::Tensor gated_linear_reference(const at::Tensor& x, const LinearWeights& weights) {
  return swiglu_reference(linear_reference(x, weights));
}

at::Tensor linear(const at::Tensor& x, const LinearWeights& weights) {
  if (has_few_rows_kernel(x, weights)) {
    const at::Tensor y = at::empty({x.size(0), weights.weight.size(0)}, x.options());
    multiply_few_rows(x, weights, RowsResult::kStored, y);
    return y;
  }
  const bool by_rows = is_for_row_kernels(x, weights);
  if (!by_rows && !is_for_many(x, weights)) return linear_reference(x, weights);
  const at::Tensor y = at::empty({x.size(0), weights.weight.size(0)}, x.options());
  by_rows ? multiply_rows(x, weights, Result::kStored, y)
          : multiply_many(x, weights, Result::kStored, y);
  return y;
}

void add_linear(at::Tensor& y, const at::Tensor& x, const LinearWeights& weights) {
  if (is_for_many(x, weights) && y.stride(1) == 1) {
    multiply_many(x, weights, Result::kAdded, y);
  } else if (is_for_row_kernels(x, weights) && y.is_contiguous()) {
    multiply_rows(x, weights, Result::kAdded, y);
  } else if (has_few_rows_kernel(x, weights) && y.is_contiguous()) {
    multiply_few_rows(x, weights, RowsResult::kAdded, y);
  } else if (x.is_cuda() && x.dim() == 2 && !weights.bias.defined()) {
    y.addmm_(x, weights.weight.t());  // one kernel, and one rounding less
  } else {
    y.add_(linear(x, weights));
  }
}

at::Tensor gated_linear(const at::Tensor& x, const LinearWeights& weights) {
  if (has_few_rows_kernel(x, weights)) {
    const at::Tensor y = at::empty({x.size(0), weights.weight.size(0) / 2}, x.options());
    multiply_few_rows(x, weights, RowsResult::kGated, y);
    return y;
  }
  const bool by_rows = is_for_row_kernels(x, weights);
  if (!by_rows && !is_for_many(x, weights)) return swiglu(linear(x, weights));
  const at::Tensor y = at::empty({x.size(0), weights.weight.size(0) / 2}, x.options());
  by_rows ? multiply_rows(x, weights, Result::kGated, y)
          : multiply_many(x, weights, Result::kGated, y);
  return y;
}

}  // namespace evalcar::kernels
