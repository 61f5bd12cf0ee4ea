#include "evaluator/kernels/many_rows.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "evaluator/kernels/panel_product.h"
#include "evaluator/kernels/panel_unit.h"
#include "evaluator/kernels/parallel.h"
#include "evaluator/kernels/tile_product.h"
#include "evaluator/kernels/tile_unit.h"

namespace evalcar::kernels {
namespace {

// Of a packed matrix so much is in memory at once.
constexpr std::int64_t kPackedBytes = std::int64_t{1} << 24;

/// What the tile unit takes: blocks of outputs, and at least so many rows of one task that packing
/// the matrix does not count.
struct Tiles {
  static std::int64_t outputs() { return kTileBlock; }
  static constexpr std::int64_t kPackedTogether = 128;  // outputs, by one thread, at least
  static constexpr std::int64_t kTask = 128;
  using Packed = char;
  template <typename Weight>
  static std::int64_t bytes(const MatrixProduct<Weight>& p) {
    return packed_bytes(p);
  }
  template <typename Weight>
  static void pack(const MatrixProduct<Weight>& p, std::int64_t first, std::int64_t count,
                   char* packed) {
    pack_matrix(p, first, count, packed);
  }
  template <typename Weight>
  static void multiply(const MatrixProduct<Weight>& p, const char* packed) {
    multiply_by_tiles(p, packed);
  }
};

/// The same of the vector unit.
struct Panels {
  static std::int64_t outputs() { return panel_kernels().front().panels * kPanelOutputs; }
  static constexpr std::int64_t kPackedTogether = 64;
  static constexpr std::int64_t kTask = kPanelRowsAtOnce;
  using Packed = float;
  template <typename Weight>
  static std::int64_t bytes(const MatrixProduct<Weight>& p) {
    return panel_floats(p) * static_cast<std::int64_t>(sizeof(float));
  }
  template <typename Weight>
  static void pack(const MatrixProduct<Weight>& p, std::int64_t first, std::int64_t count,
                   float* packed) {
    pack_panels(p, first, count, packed);
  }
  template <typename Weight>
  static void multiply(const MatrixProduct<Weight>& p, const float* packed) {
    multiply_by_panels(p, packed);
  }
};

// Up to so many rows each thread packs the panels that it multiplies by: one slab after the other
// has the threads wait for each other.
constexpr std::int64_t kRowsOfPanels = 96;
// Packing and multiplying on one thread, at least.
constexpr std::int64_t kPanelGrain = std::int64_t{1} << 18;

/// `count` blocks of outputs from block `first` on, of which the last may be a part.
template <typename Unit, typename Weight>
MatrixProduct<Weight> blocks_of(const MatrixProduct<Weight>& p, std::int64_t first,
                                std::int64_t count) {
  const std::int64_t from = first * Unit::outputs();
  return p.outputs_from(from, std::min(p.outputs - from, count * Unit::outputs()));
}

/// This thread's, which stays: memory that comes from the system anew is cleared first.
char* kept_memory(std::int64_t bytes) {
  thread_local at::Tensor kept;
  if (!kept.defined() || kept.numel() < bytes) {
    kept.reset();
    kept = at::empty({bytes}, at::kByte);
  }
  return static_cast<char*>(kept.mutable_data_ptr());
}

/// The tasks are rows; the matrix is packed before, a slab of it after the other.
template <typename Unit, typename Weight>
void multiply_slabs(const MatrixProduct<Weight>& whole) {
  using Packed = typename Unit::Packed;
  const std::int64_t of_one = std::max<std::int64_t>(1, Unit::bytes(blocks_of<Unit>(whole, 0, 1)));
  const std::int64_t blocks = (whole.outputs + Unit::outputs() - 1) / Unit::outputs();
  const std::int64_t slab = std::clamp<std::int64_t>(kPackedBytes / of_one, 1, blocks);
  auto* const packed = reinterpret_cast<Packed*>(kept_memory(slab * of_one));
  for (std::int64_t from = 0; from < blocks; from += slab) {
    const auto part = blocks_of<Unit>(whole, from, std::min(slab, blocks - from));
    const std::int64_t grain = Unit::kPackedTogether / Unit::outputs();
    in_parallel(std::min(slab, blocks - from), grain, [&](std::int64_t block, std::int64_t count) {
      Unit::pack(part, block * Unit::outputs(),
                 std::min(part.outputs - block * Unit::outputs(), count * Unit::outputs()), packed);
    });
    const std::int64_t tasks = (part.rows + Unit::kTask - 1) / Unit::kTask;
    in_parallel(tasks, 1, [&](std::int64_t task, std::int64_t count) {
      const std::int64_t row = task * Unit::kTask;
      Unit::multiply(part.rows_from(row, std::min(part.rows - row, count * Unit::kTask)), packed);
    });
  }
}

// Few enough rows for one thread's cache are packed before, and the tasks are panels of the matrix.
template <typename Weight>
void multiply_tiles(const MatrixProduct<Weight>& whole) {
  if (whole.rows > tile_rows_at_once(whole.width)) return multiply_slabs<Tiles>(whole);
  char* const rows = kept_memory(packed_row_bytes(whole));
  in_parallel(tile_blocks(whole.rows), 4, [&](std::int64_t block, std::int64_t count) {
    pack_product_rows(whole, block * kTileBlock,
                      std::min(whole.rows - block * kTileBlock, count * kTileBlock), rows);
  });
  in_parallel(tile_blocks(whole.outputs), 4, [&](std::int64_t block, std::int64_t count) {
    multiply_by_tiles(blocks_of<Tiles>(whole, block, count), nullptr, rows);
  });
}

template <typename Weight>
void multiply_panels(const MatrixProduct<Weight>& whole) {
  if (whole.rows > kRowsOfPanels) return multiply_slabs<Panels>(whole);
  const std::int64_t products =
      std::max<std::int64_t>(1, whole.rows * whole.width * Panels::outputs());
  const std::int64_t blocks = (whole.outputs + Panels::outputs() - 1) / Panels::outputs();
  in_parallel(blocks, kPanelGrain / products, [&](std::int64_t block, std::int64_t count) {
    multiply_by_panels(blocks_of<Panels>(whole, block, count), nullptr);
  });
}

}  // namespace

bool has_many_rows_kernel() { return has_tile_unit() || has_panel_unit(); }

std::int64_t rows_before_many(bool half) {
  // Packing a matrix takes the tile unit as long as some 20 rows, and as 5 where it is bfloat16 (a
  // Xeon with the unit).
  if (has_tile_unit()) return half ? 11 : 24;
  // Panels of AVX2 are faster from some four rows on (an EPYC of Zen 3), of AVX-512 from eight or
  // nine (Zen 5), and drafts ask for one kernel up to eight (engine/draft.h).
  return 8;
}

template <typename Weight>
void multiply_many_rows(const MatrixProduct<Weight>& whole) {
  if (whole.rows == 0 || whole.outputs == 0) return;
  has_tile_unit() ? multiply_tiles(whole) : multiply_panels(whole);
}

template void multiply_many_rows(const MatrixProduct<float>&);
template void multiply_many_rows(const MatrixProduct<std::uint16_t>&);

}  // namespace evalcar::kernels
