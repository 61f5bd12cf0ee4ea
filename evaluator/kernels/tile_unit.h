// The CPU's tile unit (Intel AMX): 16 x 16 sums of products of bfloat16, added up in float32.
//
// A float32 number is a sum of three bfloat16 numbers: the number rounded to bfloat16, what is left
// of it rounded again, and the rest: 24 bits in three times 8. A product of two numbers is then the
// sum of nine products, each of which float32 holds exactly; the three least of them, each
// some 2^-24 of the product or less (2^-23 of the weights of attention, whose terms are cut and not
// rounded), are left out. Six products on the unit still take less than half
// of the time of one by the vector instructions, and the sums are as near to the true ones as a
// BLAS's (matrix_product_test.cpp). A number that bfloat16 holds, as most weights are stored, is
// its own first term.
//
// What differs from a BLAS: numbers below some 2^-126 count as 0, and of infinite or huge (3.39e38)
// ones come NaN.
#pragma once

#include <cstdint>

namespace evalcar::kernels {

/// Whether this CPU has the unit, and the system lets this process use it. Asks the system the
/// first time. Any thread.
bool has_tile_unit();

/// Rows and columns of a result that are computed together.
constexpr std::int64_t kTileBlock = 32;
/// Products that are added up in a step.
constexpr std::int64_t kTileStep = 32;
/// A block of rows or columns for one step: one term of them, and all three.
constexpr std::int64_t kTermBytes = 2 * kTileBlock * kTileStep;
constexpr std::int64_t kTerms = 3;

/// Steps for sums over `width` products; what is missing in the last is 0.
constexpr std::int64_t tile_steps(std::int64_t width) {
  return (width + kTileStep - 1) / kTileStep;
}
/// Blocks for so many rows.
constexpr std::int64_t tile_blocks(std::int64_t rows) {
  return (rows + kTileBlock - 1) / kTileBlock;
}

}  // namespace evalcar::kernels
