#include "evaluator/engine/device.h"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <sched.h>
#include <torch/headeronly/version.h>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "evaluator/engine/control_group.h"
#include "evaluator/engine/host_pages.h"
#include "evaluator/engine/memory_group.h"
#include "evaluator/weights/device_errors.h"

#ifdef EVALCAR_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace evalcar::engine {
namespace {

constexpr int kLeastCapability = 75;

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

// TEST_GPU_COUNT is for tests of what happens with fewer or more.
int gpu_count() {
  if (const char* const told = std::getenv("TEST_GPU_COUNT"); told != nullptr) {
    const std::string_view digits(told);
    int count = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    const bool whole = error == std::errc() && end == digits.data() + digits.size();
    if (whole && count >= 0 && count <= 1024) return count;
  }
#ifdef EVALCAR_CUDA
  return static_cast<int>(c10::cuda::device_count());
#else
  return 0;
#endif
}

std::string visible_devices_text() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? "" : "; CUDA_VISIBLE_DEVICES is \"" + std::string(visible) + "\"";
}

std::string no_gpu_reason() {
#ifdef EVALCAR_CUDA
  constexpr bool kBuiltWithCuda = true;
#else
  constexpr bool kBuiltWithCuda = false;
#endif
  return weights::no_device_text(kBuiltWithCuda,
                                 std::ifstream("/proc/driver/nvidia/version").good(),
                                 std::getenv("CUDA_VISIBLE_DEVICES"));
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

#ifdef EVALCAR_CUDA
// "GPU-01234567-89ab-…": as nvidia-smi and NVML name it. A slice of a GPU is known by "MIG-…".
std::string uuid_text(const cudaDeviceProp& properties) {
  const bool slice = std::string_view(properties.name).find(" MIG ") != std::string_view::npos;
  std::string text = slice ? "MIG" : "GPU";
  for (std::size_t i = 0; i < sizeof properties.uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(properties.uuid.bytes[i])));
    text += digits.data();
  }
  return text;
}

// Makes no context. May throw c10::Error.
DeviceDescription describe_gpu(int index) {
  const auto* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
  return {.device = "cuda:" + std::to_string(index),
          .name = properties->name,
          .warning = "",
          .torch_version = TORCH_VERSION,
          .uuid = uuid_text(*properties),
          .capability = properties->major * 10 + properties->minor,
          .memory_bytes = properties->totalGlobalMem};
}
#endif

Result<ResolvedDevice> gpu_device(int index) {
#ifdef EVALCAR_CUDA
  DeviceDescription description = describe_gpu(index);
  if (description.capability < kLeastCapability)
    return make_error(ErrorCode::kUnsupported,
                      description.name + " has compute capability " +
                          std::to_string(description.capability / 10) + "." +
                          std::to_string(description.capability % 10) + "; 7.5 or newer is needed");
  return ResolvedDevice{c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)),
                        std::move(description)};
#else
  return make_error(ErrorCode::kInternal, "no device " + std::to_string(index));
#endif
}

struct HostMemory {
  std::uint64_t available = 0;
  std::uint64_t total = 0;
};
HostMemory host_memory() {
  const auto bytes_of = [](const char* name) {
    constexpr std::uint64_t kUnknown = std::uint64_t{4} << 30U;
    const std::string text = proc_value("/proc/meminfo", name);
    std::uint64_t kib = 0;
    std::from_chars(text.data(), text.data() + text.size(), kib);
    return kib == 0 ? kUnknown : kib * 1024;
  };
  HostMemory memory{bytes_of("MemAvailable"), bytes_of("MemTotal")};
  if (const auto group = group_memory()) {
    memory.available = std::min(memory.available, group->available);
    memory.total = std::min(memory.total, group->total);
  }
  return memory;
}

// Of the library that torch's own kernels run on, if this process has one.
std::string nccl_version() {
  using GetVersion = int (*)(int*);
  const auto get = reinterpret_cast<GetVersion>(::dlsym(RTLD_DEFAULT, "ncclGetVersion"));
  int version = 0;
  if (get == nullptr || get(&version) != 0) return "";
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
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
                        : std::to_string(count) + " GPUs are visible, numbered from 0" +
                              visible_devices_text()));
  return gpu_device(*index);
}

Result<DeviceDescription> describe_device(const std::string& device) {
  try {
    EVALCAR_ASSIGN_OR_RETURN(ResolvedDevice resolved, resolve_device(device));
    return std::move(resolved.description);
  } catch (const c10::Error& error) {
    return weights::device_error("asking for device \"" + device + "\"",
                                 error.what_without_backtrace(), {});
  }
}

DeviceReport describe_devices() {
  DeviceReport report{.torch_version = TORCH_VERSION, .nccl_version = nccl_version()};
  const int count = gpu_count();
  if (count == 0) report.no_gpu = no_gpu_reason();
#ifdef EVALCAR_CUDA
  for (int index = 0; index < count; ++index) {
    try {
      report.gpus.push_back(describe_gpu(index));
    } catch (const c10::Error& error) {
      report.no_gpu = weights::device_error("asking for cuda:" + std::to_string(index),
                                            error.what_without_backtrace(), {})
                          .message;
      break;
    }
  }
#endif
  return report;
}

void release_unused_memory(c10::Device device) {
  if (device.is_cpu()) return give_back_freed_pages();
#ifdef EVALCAR_CUDA
  try {
    const c10::cuda::CUDAGuard guard(device);
    c10::cuda::CUDACachingAllocator::emptyCache();
  } catch (const c10::Error&) {
    // A lost device has nothing to give back; the next call to it says what happened.
  }
#endif
}

void release_page_locked_memory(c10::Device device) {
  if (!device.is_cuda()) return;
  try {
    at::getHostAllocator(at::kCUDA)->empty_cache();
  } catch (const c10::Error&) {
    // As above.
  }
}

void limit_gpu_memory(c10::Device device, double share) {
#ifdef EVALCAR_CUDA
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);  // the allocator begins there
  const c10::cuda::CUDAGuard guard(device);
  c10::cuda::CUDACachingAllocator::setMemoryFraction(share, device.index());
#else
  static_cast<void>(device);
  static_cast<void>(share);
#endif
}

std::uint64_t free_host_memory() { return host_memory().available; }

GpuMemory gpu_memory(c10::Device device, double utilization, std::uint64_t weights) {
  GpuMemory memory{.weights = weights, .utilization = utilization};
#ifdef EVALCAR_CUDA
  const c10::cuda::CUDAGuard guard(device);
  std::size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  memory.free = free;
  memory.total = total;
  auto& allocator = *c10::cuda::CUDACachingAllocator::get();
  if (allocator.initialized()) {  // from the first tensor on
    const auto reserved = allocator.getDeviceStats(device.index()).reserved_bytes;
    memory.reserved = static_cast<std::uint64_t>(reserved.front().current);  // of all pools
  }
#else
  static_cast<void>(device);
#endif
  return memory;
}

CacheBudget host_cache_budget(std::uint64_t given_back) {
  const auto [available, total] = host_memory();
  const std::uint64_t now = std::min(available + given_back, total) / 4;
  return {.now = now, .without_next = now, .planned = now, .alone = total / 4};
}

void settle_gpu_numbers() {
  // cuDNN makes a plan for each shape, and ragged prompts hardly repeat one; on some cards torch
  // would prefer it to the kernels that the answers are compared with on all others.
  at::globalContext().setSDPUseCuDNN(false);
  // Some containers ask for TF32 by an environment variable.
  at::globalContext().setAllowTF32CuBLAS(false);
}

int usable_cores() {
  cpu_set_t set;
  const int cores = sched_getaffinity(0, sizeof(set), &set) == 0
                        ? CPU_COUNT(&set)
                        : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, std::min(cores, group_cores().value_or(cores)));
}

}  // namespace evalcar::engine
