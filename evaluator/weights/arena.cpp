#include "evaluator/weights/arena.h"

#include <c10/core/ScalarType.h>

#include <cassert>

#include "evaluator/weights/lasting_memory.h"

namespace evalcar::weights {
namespace {

constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t kHalfBytes = 2;  // of a bfloat16

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Arena::Arena(const WeightLayout& layout, at::ScalarType dtype, at::Device device)
    : residents_(layout.residents) {
  const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  memory_ = lasting_memory(bytes_of(layout, dtype), device);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < residents_.size(); ++i) {
    const std::int64_t bytes = residents_[i].elements() * element_bytes;
    tensors_.push_back(memory_.narrow(0, offset, bytes).view(dtype).view(residents_[i].shape));
    index_.emplace(residents_[i].name, i);
    offset += aligned(bytes);
  }
}

const at::Tensor& Arena::tensor(const std::string& name) const {
  const auto found = index_.find(name);
  assert(found != index_.end());
  return tensors_[found->second];
}

at::Tensor Arena::half(const std::string& name) const {
  const auto found = index_.find(name);
  assert(found != index_.end());
  return halves_.empty() ? at::Tensor() : halves_[found->second];
}

std::int64_t Arena::half_bytes(const std::vector<bool>& wanted) const {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) bytes += aligned(residents_[i].elements() * kHalfBytes);
  }
  return bytes;
}

void Arena::make_halves(const std::vector<bool>& exact, bool of_many, std::uint64_t most_bytes) {
  if (!memory_.is_cpu() || tensors_.empty() || tensors_.front().scalar_type() != at::kFloat) return;
  std::vector<bool> wanted(residents_.size());
  std::int64_t bytes = 0;
  for (const bool many : {true, false}) {
    if (many && !of_many) continue;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const Rows rows = residents_[i].rows;
      wanted[i] = exact[i] && (rows == Rows::kFew || (many && rows == Rows::kMany));
    }
    bytes = half_bytes(wanted);
    if (static_cast<std::uint64_t>(bytes) <= most_bytes) break;
    bytes = 0;
  }
  halves_.clear();
  if (bytes != (half_memory_.defined() ? half_memory_.numel() : 0)) {
    half_memory_ = at::Tensor();  // given back before the other is asked for
    if (bytes > 0) half_memory_ = lasting_memory(bytes, memory_.device());
  }
  if (bytes == 0) return;
  halves_.resize(residents_.size());
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < halves_.size(); ++i) {
    if (!wanted[i]) continue;
    const std::int64_t length = residents_[i].elements() * kHalfBytes;
    halves_[i] =
        half_memory_.narrow(0, offset, length).view(at::kBFloat16).view(residents_[i].shape);
    halves_[i].copy_(tensors_[i]);
    offset += aligned(length);
  }
}

bool Arena::fits(const WeightLayout& layout, at::ScalarType dtype, at::Device device) const {
  return memory_.device() == device && !tensors_.empty() &&
         tensors_.front().scalar_type() == dtype && residents_ == layout.residents;
}

std::int64_t Arena::bytes_of(const WeightLayout& layout, at::ScalarType dtype) {
  const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  std::int64_t total = 0;
  for (const auto& resident : layout.residents)
    total += aligned(resident.elements() * element_bytes);
  return total;
}

std::int64_t Arena::bytes() const { return memory_.numel(); }

}  // namespace evalcar::weights
