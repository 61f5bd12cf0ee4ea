// Work shared by libtorch's own threads, so that there is one pool of them in the process.
#pragma once

#include <cstdint>
#include <functional>

namespace evalcar::kernels {

/// Calls `work(first, count)` for parts of [0, count) that together cover it once, in no order, on
/// at::get_num_threads() threads at most; in parts of at least `least`, but for the last, where
/// there are several, the first the largest. Each thread takes the next part when it is done with
/// one. On one of several threads already it is a single part. What `work` throws is thrown here.
void in_parallel(std::int64_t count, std::int64_t least,
                 const std::function<void(std::int64_t first, std::int64_t count)>& work);

}  // namespace evalcar::kernels
