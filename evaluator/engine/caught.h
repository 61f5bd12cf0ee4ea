// Where libtorch's exceptions end.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "evaluator/weights/torch_error.h"
#include "store/base/result.h"

namespace evalcar::engine {

/// What `function` returns (a Status or a Result), or the error that its exception means, which
/// came while `what`. Whatever thread calls, kernels run on `device`.
template <typename F>
auto caught(const char* what, c10::Device device, F&& function) -> decltype(function()) {
  try {
    const c10::InferenceMode inference;
    c10::OptionalDeviceGuard guard;
    if (!device.is_cpu()) guard.reset_device(device);
    return std::forward<F>(function)();
  } catch (const c10::AcceleratorError& error) {
    return weights::torch_error(what, error.what_without_backtrace(), error.get_error_code());
  } catch (const c10::Error& error) {
    return weights::torch_error(what, error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kUnavailable, std::string("out of memory while ") + what);
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kInternal, std::string(what) + ": " + error.what());
  }
}

}  // namespace evalcar::engine
