// One allocation that holds all resident tensors of a model, at fixed addresses: a second
// checkpoint of the same architecture is written over the first, and nothing that points into it
// has to be told.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "evaluator/weights/layout.h"

namespace evalcar::weights {

/// Not thread-safe to create or destroy; different tensors may be filled by different threads.
class Arena {
 public:
  /// Allocates on `device` in `dtype` (throws c10::OutOfMemoryError, as every libtorch call here).
  /// Tensors start at multiples of 256 bytes.
  Arena(const WeightLayout& layout, at::ScalarType dtype, at::Device device);

  const at::Tensor& tensor(std::size_t index) const { return tensors_[index]; }
  /// By the resident tensor's name, which must exist.
  const at::Tensor& tensor(const std::string& name) const;
  /// The same in bfloat16, where make_halves() made that; else undefined.
  at::Tensor half(const std::string& name) const;
  /// To be called when the tensors are filled: copies the matrices that are multiplied by few rows,
  /// and with `of_many` those by many, too, whose values are bfloat16 numbers (`exact`, per
  /// resident tensor). Where that takes more than `most_bytes` in all, those by few rows alone, or
  /// none; of a float32 arena in host memory alone. Copies made before are overwritten or gone.
  void make_halves(const std::vector<bool>& exact, bool of_many, std::uint64_t most_bytes);
  /// Whether a model of this layout, dtype and device fits in place.
  bool fits(const WeightLayout& layout, at::ScalarType dtype, at::Device device) const;
  at::Device device() const { return memory_.device(); }
  std::int64_t bytes() const;
  /// What an arena of this layout takes.
  static std::int64_t bytes_of(const WeightLayout& layout, at::ScalarType dtype);

 private:
  std::int64_t half_bytes(const std::vector<bool>& wanted) const;

  at::Tensor memory_;  // (bytes) uint8
  std::vector<ResidentTensor> residents_;
  std::vector<at::Tensor> tensors_;
  at::Tensor half_memory_;          // (bytes) uint8; undefined where there are none
  std::vector<at::Tensor> halves_;  // like tensors_, or empty
  std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace evalcar::weights
