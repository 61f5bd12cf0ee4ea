// Each CUDA kernel against the bytes that it has to move.
#pragma once

namespace evalcar::testing {

/// Prints, for shapes of a 7B model in bfloat16, microseconds a call, the bytes moved a second, and
/// ATen's time where that does the same. Needs a GPU.
void bench_kernels();

}  // namespace evalcar::testing
