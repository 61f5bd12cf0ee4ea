#include "evaluator/kernels/parallel.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/arange.h>

#include <algorithm>

namespace evalcar::kernels {

// The parts are the elements of a tensor: libtorch's header for loops of one's own would need its
// OpenMP at compile time.
void in_parallel(std::int64_t count, std::int64_t least,
                 const std::function<void(std::int64_t first, std::int64_t count)>& work) {
  if (count == 0) return;
  at::Tensor numbers = at::arange(count, at::TensorOptions().dtype(at::kLong));
  auto elements = at::TensorIterator::nullary_op(numbers);
  elements.for_each(
      [&](char** data, const std::int64_t*, std::int64_t part) {
        work(*reinterpret_cast<const std::int64_t*>(data[0]), part);
      },
      std::max<std::int64_t>(1, least));
}

}  // namespace evalcar::kernels
