#include "store/checkpoint/merge_copy.h"

#include <algorithm>

#include "store/checkpoint/numeric.h"
#include "store/checkpoint/safetensors.h"

namespace evalcar::checkpoint {
namespace {

/// Whether the elements of a piece follow each other both in the tensor and in the file. Of a piece
/// that holds elements.
bool is_one_run(const TensorPlan& tensor, const Piece& piece) {
  std::int64_t inner = 1;    // elements of the dimensions behind
  bool all_of_inner = true;  // the piece has all of them
  for (std::size_t d = piece.size.size(); d-- > 0;) {
    if (piece.size[d] != 1) {
      if (!all_of_inner || piece.stride_elements[d] != inner) return false;
      inner *= piece.size[d];
    }
    all_of_inner = all_of_inner && piece.size[d] == tensor.shape[d];
  }
  return true;
}

std::uint64_t first_element(const TensorPlan& tensor, const Piece& piece) {
  const std::vector<std::int64_t> strides = contiguous_strides(tensor.shape);
  std::int64_t first = 0;
  for (std::size_t d = 0; d < strides.size(); ++d) first += piece.start[d] * strides[d];
  return static_cast<std::uint64_t>(first);
}

bool has_checksums(const Plan& plan, std::size_t file) {
  return std::any_of(plan.records.begin(), plan.records.end(),
                     [&](const PlanRecord& record) { return record.file == file; });
}

}  // namespace

std::vector<CopyRange> ranges_to_copy(const Plan& plan, const TensorPlan& tensor) {
  if (!tensor.is_stored_as_is()) return {};
  std::vector<CopyRange> ranges;
  std::uint64_t elements = 0;
  for (const Piece& piece : tensor.pieces) {
    const std::uint64_t count = checked_elements(piece.size).value_or(0);
    if (count == 0) continue;
    const bool follows = first_element(tensor, piece) == elements;
    if (!follows || !is_one_run(tensor, piece) || has_checksums(plan, piece.file)) return {};
    ranges.push_back({piece.file, piece.file_offset, count * dtype_size(tensor.dtype)});
    elements += count;
  }
  if (elements != tensor.elements()) return {};
  return ranges;
}

void align_header(std::string& header, std::uint64_t position, std::uint64_t source_offset) {
  const std::uint64_t now = header.size() + position;
  const std::uint64_t spaces = (source_offset - now) % kSharedBlockBytes;  // modulo 2^64 before
  if (spaces % 8 != 0 || header.size() - 8 + spaces > kMaxSafetensorsHeader) return;
  header.append(static_cast<std::size_t>(spaces), ' ');
  const std::uint64_t length = header.size() - 8;
  for (std::size_t i = 0; i < 8; ++i) {
    header[i] = static_cast<char>(length >> (8 * i) & 0xffU);
  }
}

}  // namespace evalcar::checkpoint
