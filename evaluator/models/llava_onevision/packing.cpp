#include "evaluator/models/llava_onevision/packing.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/upsample_bilinear2d.h>

#include <string>

namespace evalcar::models::llava_onevision {

Projector::Projector(const Config& config, const weights::Arena& arena) {
  const auto linear = [&](const std::string& name) -> kernels::LinearWeights {
    return {arena.tensor(name + ".weight"),
            config.projector_bias ? arena.tensor(name + ".bias") : at::Tensor(),
            arena.half(name + ".weight")};
  };
  first_ = linear("multi_modal_projector.linear_1");
  second_ = linear("multi_modal_projector.linear_2");
}

at::Tensor Projector::operator()(const at::Tensor& features) const {
  return kernels::linear(at::gelu(kernels::linear(features, first_)), second_);
}

at::Tensor pack_features(const at::Tensor& features, const at::Tensor& newline,
                         const evalcar::vision::AnyresGrid& grid, std::int64_t side) {
  const std::int64_t square = side * side;
  const std::int64_t hidden = features.size(1);
  const at::Tensor whole = features.narrow(0, 0, square);
  at::Tensor map = features.narrow(0, square, features.size(0) - square)
                       .view({grid.tile_rows, grid.tile_columns, side, side, hidden})
                       .permute({4, 0, 2, 1, 3})
                       .reshape({hidden, grid.tile_rows * side, grid.tile_columns * side});
  map = map.narrow(1, grid.first_row, grid.rows).narrow(2, grid.first_column, grid.columns);
  if (grid.shrunk())
    map = at::upsample_bilinear2d(map.unsqueeze(0), {grid.kept_rows, grid.kept_columns},
                                  /*align_corners=*/false)
              .squeeze(0);
  const at::Tensor ends = newline.view({hidden, 1, 1}).expand({hidden, grid.kept_rows, 1});
  const at::Tensor lines = at::cat({map, ends}, 2);  // (hidden, rows, columns + 1)
  return at::cat({whole, lines.flatten(1, 2).transpose(0, 1)}, 0);
}

}  // namespace evalcar::models::llava_onevision
