#include "evaluator/kernels/row_passes.h"

#include <cmath>
#include <cstring>

#include "evaluator/kernels/lanes.h"

namespace evalcar::kernels {

EVALCAR_FOR_EACH_CPU
void norm_rows(const NormRows& n, std::int64_t first, std::int64_t count) {
  const std::int64_t whole = n.width / kLanes * kLanes;
  for (std::int64_t m = first; m < first + count; ++m) {
    const float* const x = n.x + m * n.width;
    float* const y = n.y + m * n.width;
    Lanes squares{};
    for (std::int64_t k = 0; k < whole; k += kLanes) {
      Lanes values;
      std::memcpy(&values, x + k, sizeof(values));
      squares += values * values;
    }
    float sum = 0;
    for (std::int64_t i = 0; i < kLanes; ++i) sum += squares[i];
    for (std::int64_t k = whole; k < n.width; ++k) sum += x[k] * x[k];
    const float scale = 1 / std::sqrt(sum / static_cast<float>(n.width) + n.eps);
    for (std::int64_t k = 0; k < whole; k += kLanes) {
      Lanes values, weights;
      std::memcpy(&values, x + k, sizeof(values));
      std::memcpy(&weights, n.weight + k, sizeof(weights));
      values = values * scale * weights;
      std::memcpy(y + k, &values, sizeof(values));
    }
    for (std::int64_t k = whole; k < n.width; ++k) y[k] = x[k] * scale * n.weight[k];
  }
}

EVALCAR_FOR_EACH_CPU
void rotate_rows(const RotateRows& r, std::int64_t first, std::int64_t count) {
  const std::int64_t whole = r.half / kLanes * kLanes;
  for (std::int64_t m = first; m < first + count; ++m) {
    const float* const cos = r.cos + m * r.half;
    const float* const sin = r.sin + m * r.half;
    for (std::int64_t h = 0; h < r.heads; ++h) {
      const float* const x = r.x + m * r.row_stride + h * r.head_stride;
      float* const y = r.y + (m * r.heads + h) * 2 * r.half;
      for (std::int64_t i = 0; i < whole; i += kLanes) {
        Lanes a, b, c, s;
        std::memcpy(&a, x + i, sizeof(a));
        std::memcpy(&b, x + r.half + i, sizeof(b));
        std::memcpy(&c, cos + i, sizeof(c));
        std::memcpy(&s, sin + i, sizeof(s));
        const Lanes turned = a * c - b * s;
        const Lanes other = b * c + a * s;
        std::memcpy(y + i, &turned, sizeof(turned));
        std::memcpy(y + r.half + i, &other, sizeof(other));
      }
      for (std::int64_t i = whole; i < r.half; ++i) {
        y[i] = x[i] * cos[i] - x[r.half + i] * sin[i];
        y[r.half + i] = x[r.half + i] * cos[i] + x[i] * sin[i];
      }
    }
  }
}

}  // namespace evalcar::kernels
