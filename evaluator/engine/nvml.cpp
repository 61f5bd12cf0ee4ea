#include "evaluator/engine/nvml.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <utility>

namespace evalcar::engine {
namespace {

// The parts of nvml.h (stable since driver 470) that are used here.
using Device = void*;
constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr int kGpuIsLost = 15;
constexpr unsigned kMaxProcesses = 256;
constexpr unsigned long long kNotAvailable = ~0ULL;

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct ProcessInfo {
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};

/// "evalcar-evaluator", as the kernel cuts names.
constexpr std::string_view kEvaluatorsComm = "evalcar-evaluat";

std::string name_of_process(std::int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

std::string gibibytes(std::uint64_t bytes) {
  const std::uint64_t tenths = bytes * 10 / (std::uint64_t{1} << 30U);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  bool ready = false;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*by_uuid)(const char*, Device*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*processes)(Device, unsigned*, ProcessInfo*) = nullptr;

  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (ready) shutdown();
    if (handle != nullptr) ::dlclose(handle);
  }
  template <typename F>
  bool find(F& function, const char* name) {
    function = reinterpret_cast<F>(::dlsym(handle, name));
    return function != nullptr;
  }
  bool find_all() {
    return find(init, "nvmlInit_v2") && find(shutdown, "nvmlShutdown") &&
           find(error_string, "nvmlErrorString") &&
           find(driver_version, "nvmlSystemGetDriverVersion") &&
           find(by_uuid, "nvmlDeviceGetHandleByUUID") && find(memory, "nvmlDeviceGetMemoryInfo") &&
           find(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  }
  Error error(const std::string& what, int code) const {
    return make_error(ErrorCode::kUnavailable, "NVML: " + what + ": " + error_string(code));
  }
};

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Nvml::Nvml(Nvml&&) noexcept = default;
Nvml& Nvml::operator=(Nvml&&) noexcept = default;
Nvml::~Nvml() = default;

Result<Nvml> Nvml::open(const std::string& name) {
  auto library = std::make_unique<Library>();
  library->handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library->handle == nullptr)
    return make_error(ErrorCode::kNotFound, "NVML: " + name + " cannot be opened");
  if (!library->find_all())
    return make_error(
        ErrorCode::kNotFound,
        "NVML: " + name + " lacks a function that is needed; is the driver older than 510?");
  if (const int code = library->init(); code != kSuccess) return library->error("start", code);
  library->ready = true;
  return Nvml(std::move(library));
}

std::string Nvml::driver_version() const {
  std::array<char, 96> text{};
  const int code = library_->driver_version(text.data(), text.size() - 1);
  return code == kSuccess ? std::string(text.data()) : "";
}

Result<GpuUse> Nvml::use_of(const std::string& uuid) const {
  GpuUse use;
  Device device = nullptr;
  int code = library_->by_uuid(uuid.c_str(), &device);
  Memory memory{};
  if (code == kSuccess) code = library_->memory(device, &memory);
  use.lost = code == kGpuIsLost;
  if (use.lost) return use;
  if (code != kSuccess) return library_->error(uuid, code);
  use.total_bytes = memory.total;
  use.free_bytes = memory.free;
  std::vector<ProcessInfo> found(kMaxProcesses);
  unsigned count = kMaxProcesses;
  code = library_->processes(device, &count, found.data());
  if (code != kSuccess && code != kInsufficientSize)
    return library_->error(uuid + ", its processes", code);
  found.resize(std::min(count, kMaxProcesses));  // more than that are enough to know
  for (const ProcessInfo& process : found) {
    GpuProcess one{.pid = process.pid, .used_bytes = {}};
    if (process.used_bytes != kNotAvailable) one.used_bytes = process.used_bytes;
    use.processes.push_back(one);
  }
  return use;
}

Status check_not_shared(const std::string& device, const GpuUse& use, std::int64_t own_pid) {
  constexpr std::size_t kMostNamed = 4;
  std::string others;
  std::size_t count = 0;
  bool another_agent = false;
  for (const GpuProcess& process : use.processes) {
    if (process.pid == own_pid || ++count > kMostNamed) continue;
    const std::string name = name_of_process(process.pid);
    others += (others.empty() ? "process " : ", ") + std::to_string(process.pid);
    another_agent |= name == kEvaluatorsComm;
    if (!name.empty()) others += " " + name;
    if (process.used_bytes) others += " (" + gibibytes(*process.used_bytes) + ")";
  }
  // Of other containers NVML names no process. Nothing of ours is on the device yet.
  constexpr std::uint64_t kNobodys = std::uint64_t{1} << 30U;
  const std::uint64_t used = use.total_bytes - std::min(use.total_bytes, use.free_bytes);
  if (count == 0 && used > kNobodys) {
    others = "processes that are not visible here (" + gibibytes(used) + " are taken)";
  } else if (count == 0) {
    return {};
  }
  if (count > kMostNamed) others += " and " + std::to_string(count - kMostNamed) + " more";
  const std::string advice =
      another_agent
          ? "Two evaluators do not share a GPU: give both runs to one agent (a list in "
            "watch.output_dir), "
            "or let each agent give it back when nothing waits (evaluate.keep_resident = false, "
            "evaluate.resident_idle), or name another one (evaluate.device, CUDA_VISIBLE_DEVICES)"
          : "Name another one (evaluate.device, CUDA_VISIBLE_DEVICES), or take it all the same "
            "with "
            "evaluate.share_gpu = true";
  return make_error(ErrorCode::kUnavailable, "device busy: " + device + " is used by " + others +
                                                 "; it is waited for. " + advice);
}

std::string find_mps_pipe(const char* pipe_directory) {
  const bool named = pipe_directory != nullptr && *pipe_directory != 0;
  const std::string pipe = std::string(named ? pipe_directory : "/tmp/nvidia-mps") + "/control";
  struct stat info{};
  return ::stat(pipe.c_str(), &info) == 0 ? pipe : "";
}

}  // namespace evalcar::engine
