// Tensors whose bytes go from a checkpoint to the merged file as they are, without passing through
// this program.
//
// Only where nobody has to look at the bytes: they are neither cast nor averaged, they lie in the
// file in the tensor's own order, and no CRC-32 is stated of them. torch.save states one (unless it
// was told not to), and reading for it is the larger part of the work, so those are merged by the
// pipeline; safetensors states none. Nor does a merge need a hash of its own: weights_sha256 is
// that of the checkpoint, taken where the weights are evaluated or inspected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// Bytes of plan.files[file].
struct CopyRange {
  std::size_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// The ranges that, one after the other, are the tensor's bytes, and which can be copied; none
/// where the tensor has to be read, or is empty.
std::vector<CopyRange> ranges_to_copy(const Plan& plan, const TensorPlan& tensor);

/// Blocks that two files may share begin at a multiple of this in both.
constexpr std::uint64_t kSharedBlockBytes = 4096;

/// Lengthens a safetensors header by spaces, so that the byte at `position` behind it comes to lie
/// in its block as the byte at `source_offset` does in its own. Leaves it as it is where the data
/// would not begin at a multiple of 8 or the header would be too long.
void align_header(std::string& header, std::uint64_t position, std::uint64_t source_offset);

}  // namespace evalcar::checkpoint
