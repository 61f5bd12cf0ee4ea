#include "store/checkpoint/plan.h"

#include <algorithm>

#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
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
