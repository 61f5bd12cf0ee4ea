#include "evaluator/weights/layout.h"

#include <algorithm>
#include <cassert>

namespace evalcar::weights {

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

std::int64_t ResidentTensor::elements() const { return element_count(shape); }

void WeightLayout::add(const std::string& name, const std::vector<std::int64_t>& shape) {
  add_reshaped(name, shape, shape);
}

void WeightLayout::add_reshaped(const std::string& name, const std::vector<std::int64_t>& shape,
                                const std::vector<std::int64_t>& stored_shape) {
  assert(element_count(shape) == element_count(stored_shape));
  sources.push_back({name, stored_shape, residents.size(), 0});
  residents.push_back({name, shape});
}

void WeightLayout::add_stacked(const std::string& name, const std::vector<SourceTensor>& parts) {
  assert(!parts.empty());
  std::vector<std::int64_t> shape = parts.front().shape;
  shape[0] = 0;
  std::int64_t offset = 0;
  for (SourceTensor part : parts) {
    shape[0] += part.shape[0];
    part.resident = residents.size();
    part.offset = offset;
    offset += element_count(part.shape);
    sources.push_back(std::move(part));
  }
  residents.push_back({name, std::move(shape)});
}

void WeightLayout::add_linears(const std::string& prefix, const std::string& name,
                               std::initializer_list<LinearPart> parts, std::int64_t width,
                               bool bias) {
  std::vector<SourceTensor> matrices, biases;
  for (const LinearPart& part : parts) {
    matrices.push_back({.name = prefix + part.name + ".weight", .shape = {part.rows, width}});
    biases.push_back({.name = prefix + part.name + ".bias", .shape = {part.rows}});
  }
  add_stacked(prefix + name + ".weight", matrices);
  if (bias) add_stacked(prefix + name + ".bias", biases);
}

void WeightLayout::mark(std::string_view name, Rows rows) {
  const auto found = std::ranges::find(residents, name, &ResidentTensor::name);
  assert(found != residents.end());
  found->rows = rows;
}

}  // namespace evalcar::weights
