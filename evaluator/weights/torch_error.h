// What an exception of libtorch means to a daemon that must decide: retry, restart, or give up.
#pragma once

#include <optional>
#include <string_view>

#include "store/base/result.h"

namespace evalcar::weights {

/// The error for what libtorch threw while `doing` ("loading weights"); `text` is the exception's
/// without its backtrace, `code` the cudaError_t of a c10::AcceleratorError. As device_errors.h
/// tells: "out of memory while …", "device fault while …" (every CUDA call of this process fails
/// from now on), "device lost while …", "device busy while …", "NCCL error while …", "distributed
/// time-out while …"; else kInternal. Pure.
Error torch_error(std::string_view doing, std::string_view text, std::optional<int> code = {});

}  // namespace evalcar::weights
