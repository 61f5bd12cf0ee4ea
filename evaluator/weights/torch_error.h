// What an exception of libtorch means to a daemon that must decide: retry, restart, or give up.
#pragma once

#include <string_view>

#include "store/base/result.h"

namespace evalcar::weights {

/// The error for what libtorch threw while `doing` ("loading weights"); `text` is the exception's
/// without its backtrace. kUnavailable "out of memory while …" for an allocation that failed;
/// kUnavailable "device lost: …" for a fault of the device, after which every CUDA call of this
/// process fails; else kInternal. Pure.
Error torch_error(std::string_view doing, std::string_view text);

}  // namespace evalcar::weights
