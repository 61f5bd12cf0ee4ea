// The two passes of resample.h, in plain C++ and in AVX2. Internal to this room.
#pragma once

#include <cstdint>

#include "evaluator/vision/resample.h"

namespace evalcar::vision {

/// Rows of 3-byte pixels, without gaps. in: (rows, in_width, 3); out: (rows, axis.first.size(), 3).
struct PassInput {
  const std::uint8_t* in = nullptr;
  std::uint8_t* out = nullptr;
  std::int64_t rows = 0;      ///< of the input
  std::int64_t in_width = 0;  ///< pixels
};

void horizontal_pass_portable(const ResampleAxis& axis, const PassInput& pass);
/// in: (rows, in_width, 3); out: (axis.first.size(), in_width, 3).
void vertical_pass_portable(const ResampleAxis& axis, const PassInput& pass);

#if defined(__x86_64__)
bool cpu_has_avx2();
void horizontal_pass_avx2(const ResampleAxis& axis, const PassInput& pass);
void vertical_pass_avx2(const ResampleAxis& axis, const PassInput& pass);
#endif

}  // namespace evalcar::vision
