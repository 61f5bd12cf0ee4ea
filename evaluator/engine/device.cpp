#include "evaluator/engine/device.h"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <sched.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#ifdef EVALCAR_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace evalcar::engine {
namespace {

// The value of "<key> : value" or "<key>: value" in a file of /proc; empty if it is not there.
std::string proc_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

std::string cpu_name() {
  const std::string name = proc_value("/proc/cpuinfo", "model name");
  return name.empty() ? "CPU" : name;
}

int gpu_count() {
#ifdef EVALCAR_CUDA
  return static_cast<int>(c10::cuda::device_count());
#else
  return 0;
#endif
}

// Why there is no GPU, in words.
std::string no_gpu_reason() {
#ifdef EVALCAR_CUDA
  const bool driver = std::ifstream("/proc/driver/nvidia/version").good();
  std::string reason = driver ? "an NVIDIA driver is loaded, but no GPU is visible"
                              : "no NVIDIA driver is loaded (/proc/driver/nvidia is not there)";
#else
  std::string reason = "this evaluator was built without a CUDA compiler, for the CPU only";
#endif
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) reason += "; CUDA_VISIBLE_DEVICES is \"" + std::string(visible) + "\"";
  return reason;
}

// 0 for "cuda", N for "cuda:N".
std::optional<int> gpu_index(std::string_view name) {
  if (name == "cuda") return 0;
  if (!name.starts_with("cuda:")) return std::nullopt;
  const std::string_view digits = name.substr(5);
  int index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  return whole && index >= 0 && index < 1024 ? std::optional(index) : std::nullopt;
}

ResolvedDevice cpu_device(std::string warning) {
  return {c10::Device(c10::kCPU),
          {.device = "cpu",
           .name = cpu_name(),
           .warning = std::move(warning),
           .torch_version = TORCH_VERSION}};
}

Result<ResolvedDevice> gpu_device(int index) {
#ifdef EVALCAR_CUDA
  const auto* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
  const int capability = properties->major * 10 + properties->minor;
  if (capability < 75)
    return make_error(ErrorCode::kUnsupported,
                      std::string(properties->name) + " has compute capability " +
                          std::to_string(properties->major) + "." +
                          std::to_string(properties->minor) + "; 7.5 or newer is needed");
  return ResolvedDevice{c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)),
                        {.device = "cuda:" + std::to_string(index),
                         .name = properties->name,
                         .warning = "",
                         .torch_version = TORCH_VERSION}};
#else
  return make_error(ErrorCode::kInternal, "no device " + std::to_string(index));
#endif
}

}  // namespace

Result<ResolvedDevice> resolve_device(const std::string& name) {
  if (name == "cpu") return cpu_device("");
  const int count = gpu_count();
  if (name == "auto" || name.empty()) {
    if (count > 0) return gpu_device(0);
    return cpu_device("device auto: no GPU is used, because " + no_gpu_reason() +
                      "; evaluating on the CPU, which is slow");
  }
  const auto index = gpu_index(name);
  if (!index)
    return make_error(ErrorCode::kInvalidArgument,
                      "device \"" + name + "\": expected auto, cpu, cuda or cuda:N");
  if (*index >= count)
    return make_error(
        ErrorCode::kInvalidArgument,
        "device \"" + name + "\" does not exist: " +
            (count == 0 ? no_gpu_reason()
                        : std::to_string(count) + " GPUs are visible, numbered from 0"));
  return gpu_device(*index);
}

Result<DeviceDescription> describe_device(const std::string& device) {
  try {
    EVALCAR_ASSIGN_OR_RETURN(ResolvedDevice resolved, resolve_device(device));
    return std::move(resolved.description);
  } catch (const c10::Error& error) {
    return make_error(ErrorCode::kInternal,
                      "asking for device \"" + device + "\": " + error.what_without_backtrace());
  }
}

void release_unused_memory(c10::Device device) {
#ifdef EVALCAR_CUDA
  if (!device.is_cuda()) return;
  try {
    const c10::cuda::CUDAGuard guard(device);
    c10::cuda::CUDACachingAllocator::emptyCache();
  } catch (const c10::Error&) {
    // A lost device has nothing to give back; the next call to it says what happened.
  }
#else
  static_cast<void>(device);
#endif
}

std::uint64_t cache_budget_bytes(c10::Device device, double utilization) {
#ifdef EVALCAR_CUDA
  if (device.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device);
    release_unused_memory(device);  // the last run's cache is free, and the driver must know it
    std::size_t free = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    const double reserved = static_cast<double>(total) * (1.0 - utilization);
    // A third stays for activations.
    return static_cast<std::uint64_t>(
        std::max(0.0, (static_cast<double>(free) - reserved) * 2.0 / 3.0));
  }
#endif
  static_cast<void>(device);
  static_cast<void>(utilization);
  constexpr std::uint64_t kUnknown = 1ull << 30;
  const std::string text = proc_value("/proc/meminfo", "MemAvailable");
  std::uint64_t available = 0;
  std::from_chars(text.data(), text.data() + text.size(), available);
  available = available == 0 ? kUnknown * 4 : available * 1024;
  std::ifstream limit_file("/sys/fs/cgroup/memory.max"), used_file("/sys/fs/cgroup/memory.current");
  std::uint64_t limit = 0, used = 0;
  if (limit_file >> limit && used_file >> used)
    available = std::min(available, limit - std::min(limit, used));
  return available / 4;
}

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace evalcar::engine
