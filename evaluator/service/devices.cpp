#include "evaluator/service/devices.h"

#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "evaluator/engine/nvml.h"

namespace evalcar::service {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson describe_use(const Result<engine::Nvml>& nvml, const std::string& uuid) {
  if (!nvml.has_value()) return nullptr;
  const auto use = nvml->use_of(uuid);
  if (!use.has_value()) return {{"error", use.error().message}};
  OrderedJson processes = OrderedJson::array();
  for (const engine::GpuProcess& process : use->processes) processes.push_back(process.pid);
  return {{"lost", use->lost}, {"free_bytes", use->free_bytes}, {"processes", processes}};
}

}  // namespace

Status check_device_is_free(const engine::DeviceDescription& device, bool share,
                            std::ostream& err) {
  if (share || device.uuid.empty()) return {};
  if (const std::string pipe = engine::find_mps_pipe(std::getenv("CUDA_MPS_PIPE_DIRECTORY"));
      !pipe.empty()) {
    return make_error(
        ErrorCode::kUnavailable,
        "device busy: an MPS daemon serves the GPUs here (" + pipe +
            "), so that a fault of the evaluator would end the trainer, too. Stop it, set "
            "CUDA_MPS_PIPE_DIRECTORY to an empty folder, or set evaluate.share_gpu = true");
  }
  const auto nvml = engine::Nvml::open();
  const auto use =
      nvml.has_value() ? nvml->use_of(device.uuid) : Result<engine::GpuUse>(nvml.error());
  if (!use.has_value()) {
    err << "warning: " << device.device
        << ": whether other processes use it cannot be told: " << use.error().message << '\n';
    return {};
  }
  if (use->lost) {
    return make_error(ErrorCode::kUnavailable,
                      "device lost while asking for " + device.device +
                          ": the driver lost this GPU (dmesg: Xid 79?); reset the machine, or name "
                          "another one in evaluate.device");
  }
  return engine::check_not_shared(device.device + " (" + device.name + ")", *use, ::getpid());
}

int run_devices(std::ostream& out) {
  const engine::DeviceReport report = engine::describe_devices();
  const auto nvml = engine::Nvml::open();
  OrderedJson gpus = OrderedJson::array();
  for (const engine::DeviceDescription& gpu : report.gpus) {
    gpus.push_back({{"device", gpu.device},
                    {"name", gpu.name},
                    {"uuid", gpu.uuid},
                    {"capability", gpu.capability},
                    {"memory_bytes", gpu.memory_bytes},
                    {"use", describe_use(nvml, gpu.uuid)}});
  }
  const OrderedJson document = {
      {"devices",
       {{"torch", report.torch_version},
        {"nccl", report.nccl_version},
        {"driver", nvml.has_value() ? nvml->driver_version() : ""},
        {"no_gpu", report.no_gpu},
        {"mps", engine::find_mps_pipe(std::getenv("CUDA_MPS_PIPE_DIRECTORY"))},
        {"gpus", gpus}}}};
  out << document.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << '\n';
  return 0;
}

}  // namespace evalcar::service
