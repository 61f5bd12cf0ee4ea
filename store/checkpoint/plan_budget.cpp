#include "store/checkpoint/plan_budget.h"

#include <algorithm>

namespace evalcar::checkpoint {
namespace {

constexpr std::uint64_t kPerDescribedByte = 6;
constexpr std::uint64_t kFileBytesPerByte = 64;
constexpr std::uint64_t kMostForParts = std::uint64_t{512} << 20U;  // whatever a sparse file claims

// With what a map of names, a vector that grows and an allocator take besides.
constexpr std::uint64_t kTensor = 512;
constexpr std::uint64_t kFound = 256;
constexpr std::uint64_t kPiece = 128;
constexpr std::uint64_t kVector = 16;
constexpr std::uint64_t kNumber = 8;
constexpr std::uint64_t kCopiesOfName = 3;

}  // namespace

void PlanBudget::allow_description(std::uint64_t bytes) { allowed_ += kPerDescribedByte * bytes; }

void PlanBudget::allow_parts(std::uint64_t file_bytes) {
  const std::uint64_t more = std::min(file_bytes / kFileBytesPerByte, kMostForParts - parts_);
  parts_ += more;
  allowed_ += more;
}

bool PlanBudget::is_capped() const { return parts_ == kMostForParts; }

void PlanBudget::take(const TensorPlan& tensor) {
  taken_ += kTensor + kCopiesOfName * tensor.name.size() + kVector + kNumber * tensor.shape.size();
}

void PlanBudget::take(const Piece& piece) {
  taken_ += kPiece + 3 * (kVector + kNumber * piece.size.size());
}

void PlanBudget::take_whole(const TensorPlan& tensor) {
  take(tensor);
  for (const Piece& piece : tensor.pieces) take(piece);
}

void PlanBudget::take_found(std::size_t dimensions) {
  taken_ += kFound + 2 * (kVector + kNumber * dimensions);
}

}  // namespace evalcar::checkpoint
