#include "evaluator/weights/torch_error.h"

#include <algorithm>
#include <array>
#include <string>

namespace evalcar::weights {
namespace {

template <std::size_t N>
bool contains_any(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::ranges::any_of(words,
                             [&](std::string_view word) { return text.find(word) != text.npos; });
}

// The CPU's allocator, the caching allocator, the driver and cuBLAS each say it in their own words.
constexpr std::array<std::string_view, 3> kOutOfMemory{"can't allocate memory", "out of memory",
                                                       "CUBLAS_STATUS_ALLOC_FAILED"};
// What C10_CUDA_CHECK and TORCH_CUDABLAS_CHECK write.
constexpr std::string_view kDeviceFault = "CUDA error:";
// Calls that were refused, not a device that failed: a new process would be refused, too.
constexpr std::array<std::string_view, 5> kRefusedCalls{
    "CUDA error: invalid argument", "CUDA error: invalid configuration argument",
    "CUDA error: no kernel image is available", "CUBLAS_STATUS_INVALID_VALUE",
    "CUBLAS_STATUS_NOT_SUPPORTED"};

}  // namespace

Error torch_error(std::string_view doing, std::string_view text) {
  const std::string what(doing);
  const std::string said(text);
  if (contains_any(text, kOutOfMemory))
    return make_error(ErrorCode::kUnavailable, "out of memory while " + what + ": " + said);
  if (text.find(kDeviceFault) != text.npos && !contains_any(text, kRefusedCalls))
    return make_error(ErrorCode::kUnavailable, "device lost: " + what + ": " + said);
  return make_error(ErrorCode::kInternal, what + ": " + said);
}

}  // namespace evalcar::weights
