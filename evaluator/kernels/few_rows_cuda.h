// The CUDA kernel behind few_rows.h, free of libtorch so that nvcc compiles it in a second.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "evaluator/kernels/few_rows_block.h"

namespace evalcar::kernels {

/// FewRows<T> with untyped device pointers.
struct FewRowsLaunch {
  StoredType type = StoredType::kFloat32;
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;
  void* y = nullptr;
  std::int64_t rows = 0, outputs = 0, width = 0;
  RowsResult result = RowsResult::kStored;
};

/// Returns at once. 1 to kMostFewRows rows. Compute capability 8.0 or newer.
cudaError_t launch_few_rows(const FewRowsLaunch& launch, cudaStream_t stream);

}  // namespace evalcar::kernels
