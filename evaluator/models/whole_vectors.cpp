#include "evaluator/models/whole_vectors.h"

#include <ATen/ops/zeros.h>

#include <vector>

namespace evalcar::models {
namespace {

// (2 · from, …) to (2 · to, …): each half by itself.
at::Tensor filled_halves(const at::Tensor& both, std::int64_t from, std::int64_t to) {
  if (!both.defined()) return both;
  std::vector<std::int64_t> sizes = both.sizes().vec();
  sizes[0] = 2 * to;
  const at::Tensor filled = at::zeros(sizes, both.options());
  for (const std::int64_t half : {0, 1})
    filled.narrow(0, half * to, from).copy_(both.narrow(0, half * from, from));
  return filled;
}

}  // namespace

GatedLayer in_whole_vectors(const GatedLayer& layer, std::int64_t multiple) {
  const at::Tensor& down = layer.down.weight;
  const std::int64_t inner = down.size(1), filled = (inner + multiple - 1) / multiple * multiple;
  if (filled == inner) return layer;
  const at::Tensor out = at::zeros({down.size(0), filled}, down.options());
  out.narrow(1, 0, inner).copy_(down);
  return {.gate_up = {filled_halves(layer.gate_up.weight, inner, filled),
                      filled_halves(layer.gate_up.bias, inner, filled), at::Tensor()},
          .down = {out, layer.down.bias, at::Tensor()}};
}

}  // namespace evalcar::models
