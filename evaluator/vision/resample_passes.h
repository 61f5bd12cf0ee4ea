// The two passes of resample.h, in plain C++ and in AVX2. Internal to this room.
#pragma once

#include <cstdint>

#include "evaluator/vision/resample.h"

namespace evalcar::vision {

/// Rows of 3-byte pixels, without gaps. in: (rows, in_width, 3), its first row being row
/// `first_row` of the whole picture.
struct PassInput {
  const std::uint8_t* in = nullptr;
  std::int64_t rows = 0;
  std::int64_t in_width = 0;  ///< pixels
  std::int64_t first_row = 0;
};

/// All rows of the input. out: (rows, axis.first.size(), 3).
void horizontal_pass_portable(const ResampleAxis& axis, const PassInput& input, std::uint8_t* out);
/// The output rows from `begin` to before `end`, whose input rows must all be there. out: (end -
/// begin, in_width, 3).
void vertical_pass_portable(const ResampleAxis& axis, const PassInput& input, std::size_t begin,
                            std::size_t end, std::uint8_t* out);

#if defined(__x86_64__)
bool cpu_has_avx2();
void horizontal_pass_avx2(const ResampleAxis& axis, const PassInput& input, std::uint8_t* out);
void vertical_pass_avx2(const ResampleAxis& axis, const PassInput& input, std::size_t begin,
                        std::size_t end, std::uint8_t* out);
#endif

}  // namespace evalcar::vision
