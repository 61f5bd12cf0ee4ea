// Many rows times a matrix in float32 on the CPU: what is asked of a kernel. No libtorch.
#pragma once

#include <cstdint>

namespace evalcar::kernels {

/// What becomes of s[m][n] = Σ x[m · x_stride + k] · w[n · width + k] (+ bias[n]): it is y[m][n];
/// or, with `adds`, added to it; or, with a gate g made of x like s, y[m][n] = silu(g[m][n]) ·
/// s[m][n].
template <typename Weight>
struct MatrixProduct {
  const float* x = nullptr;  ///< (rows, width)
  std::int64_t x_stride = 0;
  std::int64_t rows = 0;
  const Weight* w = nullptr;  ///< (outputs, width): float, or bfloat16's 16 bits
  std::int64_t outputs = 0;
  std::int64_t width = 0;
  const float* bias = nullptr;       ///< (outputs), or null
  const Weight* gate = nullptr;      ///< (outputs, width), or null
  const float* gate_bias = nullptr;  ///< (outputs), or null
  bool adds = false;                 ///< not with a gate
  float* y = nullptr;
  std::int64_t y_stride = 0;  ///< floats from row to row

  /// The product of outputs [first, first + count) alone.
  MatrixProduct outputs_from(std::int64_t first, std::int64_t count) const {
    const auto moved = [first](auto* at, std::int64_t by) {
      return at == nullptr ? nullptr : at + first * by;
    };
    MatrixProduct part = *this;
    part.outputs = count;
    part.w = moved(w, width);
    part.bias = moved(bias, 1);
    part.gate = moved(gate, width);
    part.gate_bias = moved(gate_bias, 1);
    part.y = moved(y, 1);
    return part;
  }
  MatrixProduct rows_from(std::int64_t first, std::int64_t count) const {
    MatrixProduct part = *this;
    part.rows = count;
    part.x += first * x_stride;
    part.y += first * y_stride;
    return part;
  }
};

}  // namespace evalcar::kernels
