#include "store/checkpoint/plan.h"

#include <algorithm>
#include <tuple>

#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

bool overlap(const Piece& a, const Piece& b) {
  for (std::size_t d = 0; d < a.start.size(); ++d) {
    if (a.start[d] + a.size[d] <= b.start[d] || b.start[d] + b.size[d] <= a.start[d]) return false;
  }
  return true;
}

Error tiling_error(const TensorPlan& tensor, const std::string& why) {
  return make_error(ErrorCode::kCorruption, "tensor " + quote_name(tensor.name) + " of shape " +
                                                shape_text(tensor.shape) + ": " + why);
}

bool in_range(const TensorPlan& tensor, const Piece& piece) {
  if (piece.start.size() != tensor.shape.size() || piece.size.size() != tensor.shape.size()) {
    return false;
  }
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    if (piece.start[d] < 0 || piece.size[d] < 0 || piece.size[d] > tensor.shape[d] ||
        piece.start[d] > tensor.shape[d] - piece.size[d]) {
      return false;
    }
  }
  return true;
}

/// The dimension along which the pieces begin at the most places: a sweep along it compares each
/// with the fewest others. Of a tensor with dimensions.
std::size_t sweep_dimension(const std::vector<Piece>& pieces, std::size_t dimensions) {
  std::size_t best = 0;
  std::size_t most = 0;
  std::vector<std::int64_t> starts(pieces.size());
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::transform(pieces.begin(), pieces.end(), starts.begin(),
                   [d](const Piece& piece) { return piece.start[d]; });
    std::sort(starts.begin(), starts.end());
    const auto places =
        static_cast<std::size_t>(std::unique(starts.begin(), starts.end()) - starts.begin());
    if (places > most) {
      best = d;
      most = places;
    }
    starts.resize(pieces.size());
  }
  return best;
}

/// The start of a piece that overlaps another; pieces are in range, hold elements, and differ.
std::optional<std::vector<std::int64_t>> find_overlap(const std::vector<Piece>& pieces) {
  if (pieces.size() < 2) return std::nullopt;  // a scalar has one
  const std::size_t d = sweep_dimension(pieces, pieces[0].start.size());
  std::vector<const Piece*> order;
  for (const Piece& piece : pieces) order.push_back(&piece);
  std::stable_sort(order.begin(), order.end(),
                   [d](const Piece* a, const Piece* b) { return a->start[d] < b->start[d]; });
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t j = i + 1; j < order.size(); ++j) {
      if (order[j]->start[d] >= order[i]->start[d] + order[i]->size[d]) break;
      if (overlap(*order[i], *order[j])) return order[j]->start;
    }
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t TensorPlan::elements() const { return checked_elements(shape).value_or(0); }
std::uint64_t TensorPlan::bytes() const { return elements() * dtype_size(dtype); }
std::uint64_t Box::elements() const { return checked_elements(size).value_or(0); }

const TensorPlan* Plan::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const TensorPlan& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

std::uint64_t Plan::bytes() const {
  std::uint64_t total = 0;
  for (const TensorPlan& tensor : tensors) total += tensor.bytes();
  return total;
}

Status check_tiling(TensorPlan& tensor) {
  auto& pieces = tensor.pieces;
  for (const Piece& piece : pieces) {
    if (!in_range(tensor, piece)) {
      return tiling_error(tensor, "a shard of shape " + shape_text(piece.size) + " at " +
                                      shape_text(piece.start) + " lies outside");
    }
  }
  std::erase_if(pieces, [](const Piece& piece) { return checked_elements(piece.size) == 0U; });
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.start, a.size) < std::tie(b.start, b.size);
  });
  pieces.erase(std::unique(pieces.begin(), pieces.end(),
                           [](const Piece& a, const Piece& b) {
                             return a.start == b.start && a.size == b.size;
                           }),
               pieces.end());
  if (const auto place = find_overlap(pieces)) {
    return tiling_error(tensor, "two shards overlap at " + shape_text(*place));
  }
  std::uint64_t covered = 0;
  for (const Piece& piece : pieces) covered += checked_elements(piece.size).value_or(0);
  if (covered != tensor.elements()) {
    return tiling_error(tensor, "the shards hold " + std::to_string(covered) +
                                    " elements, expected " + std::to_string(tensor.elements()));
  }
  return {};
}

std::vector<Box> row_major_boxes(const TensorPlan& tensor, std::uint64_t max_bytes) {
  return row_major_boxes(Box{std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape},
                         dtype_size(tensor.dtype), max_bytes);
}

std::vector<Box> row_major_boxes(const Box& whole, std::size_t element_bytes,
                                 std::uint64_t max_bytes) {
  std::vector<Box> boxes;
  const std::vector<std::int64_t>& shape = whole.size;
  const std::size_t rank = shape.size();
  if (whole.elements() == 0) return boxes;
  if (rank == 0) return {Box{}};
  const std::uint64_t limit =
      std::max<std::uint64_t>(1, max_bytes / element_bytes);  // elements of a box

  // Dimension `cut` is the first whose slices fit; the dimensions before it are walked one index
  // at a time, it is walked in groups, those after it are taken whole.
  std::size_t cut = rank - 1;
  std::uint64_t slice = 1;
  while (cut > 0 && slice * static_cast<std::uint64_t>(shape[cut]) <= limit) {
    slice *= static_cast<std::uint64_t>(shape[cut]);
    --cut;
  }
  const auto group = static_cast<std::int64_t>(
      std::min<std::uint64_t>(limit / slice, static_cast<std::uint64_t>(shape[cut])));
  std::vector<std::int64_t> at(rank, 0);  // within `whole`
  while (true) {
    Box box{whole.start, shape};
    for (std::size_t d = 0; d < rank; ++d) box.start[d] += at[d];
    for (std::size_t d = 0; d < cut; ++d) box.size[d] = 1;
    box.size[cut] = std::min(group, shape[cut] - at[cut]);
    boxes.push_back(std::move(box));
    at[cut] += group;
    for (std::size_t d = cut + 1; d-- > 0;) {
      if (at[d] < shape[d]) break;
      if (d == 0) return boxes;
      at[d] = 0;
      ++at[d - 1];
    }
  }
}

std::string tensor_sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return to_hex(hash.finish());
}

std::string weights_sha256(std::vector<TensorDigest> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorDigest& a, const TensorDigest& b) { return a.name < b.name; });
  Sha256 hash;
  for (const TensorDigest& tensor : tensors) {
    std::string line = tensor.name + '\t' + std::string(dtype_name(tensor.dtype)) + '\t';
    for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
      if (d > 0) line += ',';
      line += std::to_string(tensor.shape[d]);
    }
    hash.update(line + '\t' + tensor.sha256 + '\n');
  }
  return to_hex(hash.finish());
}

}  // namespace evalcar::checkpoint
