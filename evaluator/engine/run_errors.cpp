#include "evaluator/engine/run_errors.h"

#include "evaluator/engine/nvml.h"
#include "evaluator/weights/device_errors.h"
#include "evaluator/weights/torch_error.h"

namespace evalcar::engine {
namespace {

// As torch_error() and check_fits() begin their messages.
bool begins(const Status& status, weights::DeviceErrorKind kind) {
  return !status.has_value() && status.error().message.starts_with(
                                    std::string(weights::device_error_prefix(kind)) + " while");
}

}  // namespace

bool is_device_busy(const Status& status) {
  return begins(status, weights::DeviceErrorKind::kDeviceBusy);
}

bool is_out_of_memory(const Status& status) {
  return begins(status, weights::DeviceErrorKind::kOutOfMemory) ||
         (is_device_busy(status) &&
          status.error().message.find("out of the memory") != std::string::npos);
}

Error looked_into(Error error, const std::string& uuid) {
  const bool fault = error.message.starts_with(
      weights::device_error_prefix(weights::DeviceErrorKind::kDeviceFault));
  if (!fault || uuid.empty()) return error;
  const auto nvml = Nvml::open();
  const auto use = nvml.has_value() ? nvml->use_of(uuid) : Result<GpuUse>(nvml.error());
  if (!use.has_value() || !use->lost) return error;
  return weights::torch_error("generating", error.message + " (NVML: GPU is lost)");
}

}  // namespace evalcar::engine
