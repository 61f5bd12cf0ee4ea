#include "evaluator/kernels/linear.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>

#include <algorithm>
#include <optional>

#include "evaluator/kernels/row_kernels.h"

namespace evalcar::kernels {
namespace {

constexpr std::int64_t kPanel = 32;  // outputs that go together
// Values of the matrix for one thread, at least: below, waking another costs more than it brings.
constexpr std::int64_t kGrain = 32768;

bool is_for_rows(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && x.dim() == 2 &&
         x.size(0) <= row_kernels().front().most_rows;
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
void multiply(const RowProduct<Weight>& whole, void (*kernel)(const RowProduct<Weight>&)) {
  // The panels are the elements of a tensor, so that libtorch's own threads share them.
  const std::int64_t panels = (whole.outputs + kPanel - 1) / kPanel;
  at::Tensor numbers = at::arange(panels, at::TensorOptions().dtype(at::kLong));
  auto work = at::TensorIterator::nullary_op(numbers);
  work.for_each(
      [&](char** data, const std::int64_t*, std::int64_t count) {
        const std::int64_t first = *reinterpret_cast<const std::int64_t*>(data[0]) * kPanel;
        RowProduct<Weight> part = whole;
        part.outputs = std::min(whole.outputs - first, count * kPanel);
        part.w += first * whole.width;
        part.y += first;
        if (part.bias != nullptr) part.bias += first;
        kernel(part);
      },
      std::max<std::int64_t>(1, kGrain / (kPanel * whole.width)));
}

}  // namespace

at::Tensor linear_reference(const at::Tensor& x, const LinearWeights& weights) {
  return at::linear(x, weights.weight,
                    weights.bias.defined() ? std::optional(weights.bias) : std::nullopt);
}

at::Tensor linear(const at::Tensor& x, const LinearWeights& weights) {
  if (!is_for_rows(x)) return linear_reference(x, weights);
  const std::int64_t rows = x.size(0), width = x.size(1), outputs = weights.weight.size(0);
  at::Tensor y = at::empty({rows, outputs}, x.options());
  if (y.numel() == 0) return y;
  const at::Tensor values = weights.half.defined() ? arranged(x.contiguous()) : x.contiguous();
  const auto product = [&]<typename Weight>(const at::Tensor& matrix, Weight) {
    return RowProduct<Weight>{
        .x = values.const_data_ptr<float>(),
        .rows = rows,
        .w = static_cast<const Weight*>(matrix.const_data_ptr()),
        .outputs = outputs,
        .width = width,
        .bias = weights.bias.defined() ? weights.bias.const_data_ptr<float>() : nullptr,
        .y = y.mutable_data_ptr<float>(),
        .stride = outputs};
  };
  const RowKernels& kernels = row_kernels().front();
  if (weights.half.defined()) {
    multiply(product(weights.half, std::uint16_t{}), kernels.multiply_bf16);
  } else {
    multiply(product(weights.weight, float{}), kernels.multiply);
  }
  return y;
}

}  // namespace evalcar::kernels
