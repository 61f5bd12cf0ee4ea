// Compiled with -ffp-contract=off: a fused multiply-add is written where one is meant, and nowhere
// else.
#include "store/checkpoint/low_rank.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "store/checkpoint/convert.h"
#include "store/checkpoint/numeric.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace evalcar::checkpoint {
namespace {

/// Of one tile of A and one of B.
constexpr std::size_t kTileBytes = std::size_t{4} << 20U;

/// sum[j] = Σ_k left[k] · right[k · columns + j], one chain of fused multiply-adds per j.
template <typename T>
void chain(const T* left, const T* right, std::size_t r, std::size_t columns, std::size_t first,
           std::size_t last, T* sum) {
  for (std::size_t j = first; j < last; ++j) {
    T total = 0;
    for (std::size_t k = 0; k < r; ++k) total = std::fma(left[k], right[k * columns + j], total);
    sum[j] = total;
  }
}

#if defined(__x86_64__)
constexpr std::size_t kBlock = 64;  // columns: eight vector registers of sums

/// The same for the columns first … first + 64.
__attribute__((target("avx2,fma"))) void chain_block(const float* left, const float* right,
                                                     std::size_t r, std::size_t columns,
                                                     float* sum) {
  __m256 total[8];
  for (__m256& each : total) each = _mm256_setzero_ps();
  for (std::size_t k = 0; k < r; ++k) {
    const __m256 factor = _mm256_set1_ps(left[k]);
    const float* const row = right + k * columns;
    for (std::size_t v = 0; v < 8; ++v) {
      total[v] = _mm256_fmadd_ps(factor, _mm256_loadu_ps(row + 8 * v), total[v]);
    }
  }
  for (std::size_t v = 0; v < 8; ++v) _mm256_storeu_ps(sum + 8 * v, total[v]);
}

bool has_fma() {
  static const bool has = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  return has;
}
#endif

/// product[i · columns + j] = Σ_k left[i · r + k] · right[k · columns + j].
template <typename T>
void multiply(std::span<const T> left, std::span<const T> right, std::size_t rows, std::size_t r,
              std::size_t columns, std::span<T> product) {
  std::size_t done = 0;
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, float>) {
    // Columns outside, rows inside: the block of A stays in the first-level cache.
    for (; has_fma() && done + kBlock <= columns; done += kBlock) {
      for (std::size_t i = 0; i < rows; ++i) {
        chain_block(left.data() + i * r, right.data() + done, r, columns,
                    product.data() + i * columns + done);
      }
    }
  }
#endif
  for (std::size_t i = 0; i < rows; ++i) {
    chain(left.data() + i * r, right.data(), r, columns, done, columns,
          product.data() + i * columns);
  }
}

template <typename T>
constexpr DType kComputeType = std::is_same_v<T, double> ? DType::kFloat64 : DType::kFloat32;

/// Adds updates tile by tile, in float or double.
template <typename T>
class Adder {
 public:
  Adder(const TensorPlan& tensor, const LowRankUpdate& update, const Box& box,
        const BoxReader& read, std::span<std::byte> values)
      : tensor_(tensor), update_(update), box_(box), read_(read), values_(values) {
    for (std::size_t d = 2; d < box.size.size(); ++d)
      inner_ *= static_cast<std::size_t>(box.size[d]);
    r_ = static_cast<std::size_t>(update_.a.shape[0]);
  }

  Status run() {
    const auto rows = static_cast<std::size_t>(box_.size[0]);
    const auto columns = static_cast<std::size_t>(box_.size[1]);
    // r is not 0: the update fits.
    const std::size_t row_step = std::clamp<std::size_t>(kTileBytes / (r_ * sizeof(T)), 1, rows);
    const std::size_t column_step =
        std::clamp<std::size_t>(kTileBytes / (r_ * inner_ * sizeof(T)), 1, columns);
    for (std::size_t j = 0; j < columns; j += column_step) {
      const std::size_t width = std::min(column_step, columns - j);
      EVALCAR_RETURN_IF_ERROR(read_right(j, width));
      for (std::size_t i = 0; i < rows; i += row_step) {
        const std::size_t height = std::min(row_step, rows - i);
        EVALCAR_RETURN_IF_ERROR(read_left(i, height));
        add_tile(i, height, j, width);
      }
    }
    return {};
  }

 private:
  /// right[k, j]: A's columns, or B's rows where the weight is transposed.
  Status read_right(std::size_t j, std::size_t width) {
    if (update_.transposed) {
      return read_factor(update_.b, 0, box_.start[1], j, width, true, right_);
    }
    Box box{box_.start, box_.size};
    box.start[0] = 0;
    box.size[0] = update_.a.shape[0];
    box.start[1] += static_cast<std::int64_t>(j);
    box.size[1] = static_cast<std::int64_t>(width);
    return read_values(update_.a, box, right_);
  }

  /// left[i, k]: B's rows, or A's columns where the weight is transposed.
  Status read_left(std::size_t i, std::size_t height) {
    return update_.transposed ? read_factor(update_.a, 1, box_.start[0], i, height, true, left_)
                              : read_factor(update_.b, 0, box_.start[0], i, height, false, left_);
  }

  /// Reads `count` slices of a matrix along `dimension`, from `start` + `first` on.
  Status read_factor(const TensorPlan& factor, std::size_t dimension, std::int64_t start,
                     std::size_t first, std::size_t count, bool transpose, std::vector<T>& out) {
    Box box{std::vector<std::int64_t>(factor.shape.size(), 0), factor.shape};
    box.start[dimension] = start + static_cast<std::int64_t>(first);
    box.size[dimension] = static_cast<std::int64_t>(count);
    if (!transpose) return read_values(factor, box, out);
    EVALCAR_RETURN_IF_ERROR(read_values(factor, box, turned_));
    const auto rows = static_cast<std::size_t>(box.size[0]);
    const auto columns = static_cast<std::size_t>(box.size[1]);
    out.resize(turned_.size());
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) out[j * rows + i] = turned_[i * columns + j];
    }
    return {};
  }

  Status read_values(const TensorPlan& factor, const Box& box, std::vector<T>& out) {
    out.resize(box.elements());
    const auto bytes = std::as_writable_bytes(std::span(out));
    if (factor.dtype == kComputeType<T>) return read_(factor, box, bytes);
    stored_.resize(out.size() * dtype_size(factor.dtype));
    EVALCAR_RETURN_IF_ERROR(read_(factor, box, stored_));
    convert(factor.dtype, stored_, kComputeType<T>, bytes);
    return {};
  }

  void add_tile(std::size_t first_row, std::size_t rows, std::size_t first_column,
                std::size_t width) {
    const std::size_t columns = width * inner_;
    const std::size_t row_elements = static_cast<std::size_t>(box_.size[1]) * inner_;
    const std::size_t element_bytes = dtype_size(tensor_.dtype);
    // Rows in groups, so that the product stays small.
    const std::size_t group =
        std::clamp<std::size_t>(kTileBytes / 4 / (columns * sizeof(T)), 1, rows);
    for (std::size_t i = 0; i < rows; i += group) {
      const std::size_t height = std::min(group, rows - i);
      product_.resize(height * columns);
      multiply<T>(std::span(left_).subspan(i * r_, height * r_), right_, height, r_, columns,
                  product_);
      for (std::size_t row = 0; row < height; ++row) {
        const std::size_t place = (first_row + i + row) * row_elements + first_column * inner_;
        add_run(std::span(product_).subspan(row * columns, columns),
                values_.subspan(place * element_bytes, columns * element_bytes));
      }
    }
  }

  /// Scales one run of the product and adds it to the stored values.
  void add_run(std::span<T> product, std::span<std::byte> values) {
    const T scale = static_cast<T>(update_.scale);
    for (T& each : product) each *= scale;
    if (update_.round_update && tensor_.dtype != kComputeType<T>) {
      rounded_.resize(values.size());
      convert(kComputeType<T>, std::as_bytes(product), tensor_.dtype, rounded_);
      convert(tensor_.dtype, rounded_, kComputeType<T>, std::as_writable_bytes(product));
    }
    base_.resize(product.size());
    convert(tensor_.dtype, values, kComputeType<T>, std::as_writable_bytes(std::span(base_)));
    for (std::size_t j = 0; j < product.size(); ++j) base_[j] += product[j];
    convert(kComputeType<T>, std::as_bytes(std::span(base_)), tensor_.dtype, values);
  }

  const TensorPlan& tensor_;
  const LowRankUpdate& update_;
  const Box& box_;
  const BoxReader& read_;
  std::span<std::byte> values_;
  std::size_t inner_ = 1;  // elements of the dimensions after the second
  std::size_t r_ = 0;
  std::vector<T> left_;
  std::vector<T> right_;
  std::vector<T> turned_;
  std::vector<T> product_;
  std::vector<T> base_;
  std::vector<std::byte> stored_;
  std::vector<std::byte> rounded_;
};

}  // namespace

std::string low_rank_mismatch(const TensorPlan& tensor, const LowRankUpdate& update) {
  const auto& w = tensor.shape;
  const auto& a = update.a.shape;
  const auto& b = update.b.shape;
  for (const TensorPlan* each : {&tensor, &update.a, &update.b}) {
    if (!is_convertible(each->dtype)) {
      return quote_name(each->name) + " is " + std::string(dtype_name(each->dtype)) +
             ", expected float32, bfloat16, float16 or float64";
    }
  }
  const bool in_range = tensor.dtype == DType::kFloat64
                            ? std::isfinite(update.scale)
                            : std::fabs(update.scale) <= std::numeric_limits<float>::max();
  if (!in_range) return "its scale is not a finite number";
  const auto unfit = [&] {
    return "A of shape " + shape_text(a) + " and B of shape " + shape_text(b) +
           " do not fit the weight of shape " + shape_text(w) +
           (update.transposed ? " (stored as [in, out])" : "");
  };
  if (w.size() < 2 || a.size() != w.size() || b.size() < 2) return unfit();
  if (a[0] != b[1] || a[0] < 1) return unfit();
  if (std::any_of(b.begin() + 2, b.end(), [](std::int64_t size) { return size != 1; }))
    return unfit();
  if (update.transposed) {
    return w.size() == 2 && b.size() == 2 && w[0] == a[1] && w[1] == b[0] ? "" : unfit();
  }
  return w[0] == b[0] && std::equal(w.begin() + 1, w.end(), a.begin() + 1) ? "" : unfit();
}

namespace {

/// At most two: a weight is shared by no more modules.
Status add(const TensorPlan& tensor, const LowRankUpdate& update, const Box& box,
           const BoxReader& read, std::span<std::byte> values) {
  if (update.before != nullptr) {
    EVALCAR_RETURN_IF_ERROR(add(tensor, *update.before, box, read, values));
  }
  return tensor.dtype == DType::kFloat64 ? Adder<double>(tensor, update, box, read, values).run()
                                         : Adder<float>(tensor, update, box, read, values).run();
}

}  // namespace

Status add_low_rank(const TensorPlan& tensor, const Box& box, const BoxReader& read,
                    std::span<std::byte> values) {
  return values.empty() ? Status() : add(tensor, *tensor.update, box, read, values);
}

}  // namespace evalcar::checkpoint
