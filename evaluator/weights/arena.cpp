#include "evaluator/weights/arena.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <cassert>

namespace evalcar::weights {
namespace {

constexpr std::int64_t kAlignment = 256;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Arena::Arena(const WeightLayout& layout, at::ScalarType dtype, at::Device device)
    : residents_(layout.residents) {
  const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  memory_ =
      at::empty({bytes_of(layout, dtype)}, at::TensorOptions().dtype(at::kByte).device(device));
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

void Arena::make_halves(const std::vector<bool>& exact, std::uint64_t most_bytes) {
  if (!memory_.is_cpu() || tensors_.empty() || tensors_.front().scalar_type() != at::kFloat) return;
  const auto is_wanted = [&](std::size_t i) { return residents_[i].few_rows && exact[i]; };
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < residents_.size(); ++i) {
    if (is_wanted(i)) bytes += static_cast<std::uint64_t>(residents_[i].elements()) * 2;
  }
  halves_.resize(bytes <= most_bytes ? residents_.size() : 0);
  for (std::size_t i = 0; i < halves_.size(); ++i) {
    if (!is_wanted(i)) {
      halves_[i].reset();
    } else if (halves_[i].defined()) {
      halves_[i].copy_(tensors_[i]);
    } else {
      halves_[i] = tensors_[i].to(at::kBFloat16);
    }
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
