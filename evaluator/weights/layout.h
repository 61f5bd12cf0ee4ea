// What a model wants of a checkpoint: which tensors, in which shape, and where each lands in
// memory.
//
// A resident tensor is what the model computes with; a source is a checkpoint's tensor, copied
// whole to an offset of a resident one. Fusing (q, k, v into one matrix; gate and up into one) is
// nothing but several sources under each other in one resident tensor.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace evalcar::weights {

/// How many rows a matrix is multiplied by at a time.
enum class Rows {
  kUnknown,  ///< or it is no matrix of a product
  kFew,      ///< decoding, and more
  kMany,     ///< pictures
};

struct ResidentTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  Rows rows = Rows::kUnknown;

  std::int64_t elements() const;
  bool operator==(const ResidentTensor&) const = default;
};

struct SourceTensor {
  std::string name;                 ///< canonical
  std::vector<std::int64_t> shape;  ///< as stored
  std::size_t resident = 0;         ///< index into WeightLayout::residents
  std::int64_t offset = 0;          ///< elements before it in the resident tensor
  bool operator==(const SourceTensor&) const = default;
};

/// May be left out. Where both are there it must be equal to `same_as`, else it stands for that.
struct TiedTensor {
  std::string name;
  std::string same_as;
  bool operator==(const TiedTensor&) const = default;
};

/// A matrix of WeightLayout::add_linears().
struct LinearPart {
  const char* name;
  std::int64_t rows;
};

struct WeightLayout {
  std::vector<ResidentTensor> residents;
  std::vector<SourceTensor> sources;  ///< each expected exactly once
  std::vector<TiedTensor> ties;
  /// The canonical name of a stored one: generations of checkpoints prefix the same tensors
  /// differently.
  std::string (*canonical_name)(std::string_view stored) = nullptr;

  /// Adds a resident tensor that is one source of the same name and shape.
  void add(const std::string& name, const std::vector<std::int64_t>& shape);
  /// Adds a resident tensor made of sources stacked along dimension 0; all agree in the others.
  void add_stacked(const std::string& name, const std::vector<SourceTensor>& parts);
  /// Adds "<prefix><name>.weight": the matrices "<prefix><part>.weight" one above the other, each
  /// (rows, width), so that one product computes all; and their biases alike, where there are any.
  void add_linears(const std::string& prefix, const std::string& name,
                   std::initializer_list<LinearPart> parts, std::int64_t width, bool bias);
  /// Sets ResidentTensor::rows of a resident tensor, which must exist.
  void mark(std::string_view name, Rows rows);
  /// Adds a resident tensor that holds one source under another shape with as many elements.
  void add_reshaped(const std::string& name, const std::vector<std::int64_t>& shape,
                    const std::vector<std::int64_t>& stored_shape);
  bool operator==(const WeightLayout&) const = default;
};

/// Of a tensor of this shape; 1 for a scalar's empty one.
std::int64_t element_count(const std::vector<std::int64_t>& shape);

}  // namespace evalcar::weights
