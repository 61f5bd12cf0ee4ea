#include "store/checkpoint/flat_tensor.h"

#include <algorithm>

#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

/// The largest box of a row-major tensor that begins at element `begin` and is contiguous, up to
/// `count` elements of it.
struct Run {
  Piece piece;
  std::uint64_t elements = 0;
};

Run first_run(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
              std::uint64_t begin, std::uint64_t count) {
  Run run;
  run.elements = 1;
  run.piece.size.assign(shape.size(), 1);
  run.piece.stride_elements = strides;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto stride = static_cast<std::uint64_t>(strides[d]);
    run.piece.start.push_back(
        static_cast<std::int64_t>(begin / stride % static_cast<std::uint64_t>(shape[d])));
  }
  // The outermost dimension of which whole slices can be taken.
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto stride = static_cast<std::uint64_t>(strides[d]);
    if (begin % stride != 0 || count < stride) continue;
    const std::uint64_t rows = std::min<std::uint64_t>(
        count / stride, static_cast<std::uint64_t>(shape[d] - run.piece.start[d]));
    run.piece.size[d] = static_cast<std::int64_t>(rows);
    std::copy(shape.begin() + static_cast<std::ptrdiff_t>(d) + 1, shape.end(),
              run.piece.size.begin() + static_cast<std::ptrdiff_t>(d) + 1);
    run.elements = rows * stride;
    break;
  }
  return run;
}

}  // namespace

Status FlatVector::append(std::uint64_t count, DType dtype, std::size_t file,
                          std::uint64_t file_offset) {
  if (count == 0) return {};
  if (dtype_.value_or(dtype) != dtype) {
    return make_error(ErrorCode::kCorruption, "a flat vector of " +
                                                  std::string(dtype_name(*dtype_)) + " and " +
                                                  std::string(dtype_name(dtype)));
  }
  dtype_ = dtype;
  const auto end = checked_add(size_, count);
  if (!end || *end > static_cast<std::uint64_t>(INT64_MAX)) {
    return make_error(ErrorCode::kCorruption, "a flat vector of more than 2^63 elements");
  }
  segments_.push_back({size_, count, file, file_offset});
  size_ = *end;
  return {};
}

Status FlatVector::add_pieces(TensorPlan& tensor, std::uint64_t tensor_begin, std::uint64_t begin,
                              std::uint64_t count, PlanBudget& budget) const {
  if (count == 0) return {};
  const auto outside = [&](const std::string& what, std::uint64_t size) {
    return make_error(ErrorCode::kCorruption, "tensor " + quote_name(tensor.name) + " of shape " +
                                                  shape_text(tensor.shape) + ": " + what + " has " +
                                                  std::to_string(size) + " elements, expected " +
                                                  std::to_string(count) + " from element " +
                                                  std::to_string(begin) + " on");
  };
  if (begin > size_ || count > size_ - begin) return outside("the flat vector", size_);
  const DType stored = tensor.stored_dtype.value_or(tensor.dtype);
  if (*dtype_ != stored) {
    return make_error(ErrorCode::kCorruption, "tensor " + quote_name(tensor.name) + " is " +
                                                  std::string(dtype_name(stored)) +
                                                  ", its flat vector " +
                                                  std::string(dtype_name(*dtype_)));
  }
  const std::uint64_t elements = tensor.elements();
  if (tensor_begin > elements || count > elements - tensor_begin) {
    return outside("the tensor", elements);
  }
  const std::vector<std::int64_t> strides = contiguous_strides(tensor.shape);
  const std::uint64_t element_bytes = dtype_size(stored);
  auto segment = std::upper_bound(
      segments_.begin(), segments_.end(), begin,
      [](std::uint64_t place, const FlatSegment& each) { return place < each.begin + each.count; });
  while (count > 0) {
    const std::uint64_t skipped = begin - segment->begin;
    std::uint64_t left = std::min(count, segment->count - skipped);
    std::uint64_t offset = segment->file_offset + skipped * element_bytes;
    begin += left;
    count -= left;
    while (left > 0) {
      Run run = first_run(tensor.shape, strides, tensor_begin, left);
      run.piece.file = segment->file;
      run.piece.file_offset = offset;
      budget.take(run.piece);
      if (budget.is_spent()) {
        return make_error(ErrorCode::kCorruption,
                          "tensor " + quote_name(tensor.name) + " " + PlanBudget::kTooMuch);
      }
      tensor.pieces.push_back(std::move(run.piece));
      tensor_begin += run.elements;
      offset += run.elements * element_bytes;
      left -= run.elements;
    }
    ++segment;
  }
  return {};
}

}  // namespace evalcar::checkpoint
