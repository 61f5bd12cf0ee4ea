#include "evaluator/weights/device_errors.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

namespace evalcar::weights {
namespace {

using Kind = DeviceErrorKind;

constexpr std::string_view kNewProcess =
    "the process is ended and a new one tries again; if it comes back, look at dmesg for Xid lines "
    "and run with CUDA_LAUNCH_BLOCKING=1";
constexpr std::string_view kBroken =
    "the device cannot be trusted: look at `nvidia-smi -q` and dmesg (Xid), reset or replace it, "
    "or "
    "name another one in evaluate.device";
constexpr std::string_view kUsed =
    "another process has it (exclusive mode?): it is waited for; `nvidia-smi` shows who, another "
    "device is named in evaluate.device";
constexpr std::string_view kSetUp =
    "check the driver (`nvidia-smi`), CUDA_VISIBLE_DEVICES and evaluate.device";
constexpr std::string_view kMps =
    "the MPS daemon serves this GPU: stop it, or set CUDA_MPS_PIPE_DIRECTORY to an empty folder";
constexpr std::string_view kLess =
    "lower evaluate.max_pixels or evaluate.batch_size, or use a GPU with more memory or more GPUs";
constexpr std::string_view kOurs = "";

// From driver_types.h and cudaGetErrorString() of CUDA 13.0. What is not here is about an API that
// is not used.
constexpr std::array<CudaError, 44> kTable = {{
    {1, "cudaErrorInvalidValue", "invalid argument", Kind::kRefusedCall, kOurs},
    {2, "cudaErrorMemoryAllocation", "out of memory", Kind::kOutOfMemory, kLess},
    {3, "cudaErrorInitializationError", "initialization error", Kind::kNoDevice, kSetUp},
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument", Kind::kRefusedCall,
     kOurs},
    {35, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version", Kind::kNoDevice,
     "install a newer NVIDIA driver (580 or later for CUDA 13)"},
    {46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable",
     Kind::kDeviceBusy, kUsed},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function", Kind::kRefusedCall, kOurs},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected", Kind::kNoDevice, kSetUp},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal", Kind::kNoDevice, kSetUp},
    {127, "cudaErrorStartupFailure", "startup failure in cuda runtime", Kind::kNoDevice, kSetUp},
    {201, "cudaErrorDeviceUninitialized", "invalid device context", Kind::kDeviceFault,
     kNewProcess},
    {209, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device", Kind::kRefusedCall, kOurs},
    {214, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered", Kind::kDeviceLost,
     kBroken},
    {216, "cudaErrorDeviceAlreadyInUse",
     "exclusive-thread device already in use by a different thread", Kind::kDeviceBusy, kUsed},
    {220, "cudaErrorNvlinkUncorrectable",
     "uncorrectable NVLink error detected during the execution", Kind::kDeviceLost, kBroken},
    {226, "cudaErrorContained", "Invalid access of peer GPU memory over nvlink or a hardware error",
     Kind::kDeviceFault, kNewProcess},
    {304, "cudaErrorOperatingSystem", "OS call failed or operation not supported on this OS",
     Kind::kNoDevice, kSetUp},
    {401, "cudaErrorIllegalState", "the operation cannot be performed in the present state",
     Kind::kRefusedCall, kOurs},
    {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered", Kind::kDeviceFault,
     kNewProcess},
    {701, "cudaErrorLaunchOutOfResources", "too many resources requested for launch",
     Kind::kRefusedCall, kOurs},
    {702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated", Kind::kDeviceFault,
     "a display driver's watchdog ends long kernels on that GPU: use one without a display"},
    {709, "cudaErrorContextIsDestroyed", "context is destroyed", Kind::kDeviceFault, kNewProcess},
    {710, "cudaErrorAssert", "device-side assert triggered", Kind::kDeviceFault, kNewProcess},
    {714, "cudaErrorHardwareStackError", "hardware stack error", Kind::kDeviceFault, kNewProcess},
    {715, "cudaErrorIllegalInstruction", "an illegal instruction was encountered",
     Kind::kDeviceFault, kNewProcess},
    {716, "cudaErrorMisalignedAddress", "misaligned address", Kind::kDeviceFault, kNewProcess},
    {717, "cudaErrorInvalidAddressSpace", "operation not supported on global/shared address space",
     Kind::kDeviceFault, kNewProcess},
    {718, "cudaErrorInvalidPc", "invalid program counter", Kind::kDeviceFault, kNewProcess},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure", Kind::kDeviceFault, kNewProcess},
    {720, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch",
     Kind::kRefusedCall, kOurs},
    {721, "cudaErrorTensorMemoryLeak", "tensor memory not completely freed", Kind::kDeviceFault,
     kNewProcess},
    {800, "cudaErrorNotPermitted", "operation not permitted", Kind::kRefusedCall, kOurs},
    {801, "cudaErrorNotSupported", "operation not supported", Kind::kRefusedCall, kOurs},
    {802, "cudaErrorSystemNotReady", "system not yet initialized", Kind::kDeviceBusy,
     "its fabric manager is not up yet: it is waited for (`systemctl status "
     "nvidia-fabricmanager`)"},
    {803, "cudaErrorSystemDriverMismatch",
     "system has unsupported display driver / cuda driver combination", Kind::kNoDevice,
     "the driver's kernel module and its libraries differ: reboot, or reload the module"},
    {804, "cudaErrorCompatNotSupportedOnDevice",
     "forward compatibility was attempted on non supported HW", Kind::kNoDevice, kSetUp},
    {805, "cudaErrorMpsConnectionFailed",
     "MPS client failed to connect to the MPS control daemon or the MPS server", Kind::kDeviceBusy,
     kMps},
    {806, "cudaErrorMpsRpcFailure",
     "the remote procedural call between the MPS server and the MPS client failed",
     Kind::kDeviceFault, kMps},
    {807, "cudaErrorMpsServerNotReady", "MPS server is not ready to accept new MPS client requests",
     Kind::kDeviceBusy, kMps},
    {808, "cudaErrorMpsMaxClientsReached",
     "the hardware resources required to create MPS client have been exhausted", Kind::kDeviceBusy,
     kMps},
    {809, "cudaErrorMpsMaxConnectionsReached",
     "the hardware resources required to support device connections have been exhausted",
     Kind::kDeviceBusy, kMps},
    {810, "cudaErrorMpsClientTerminated", "the MPS client has been terminated by the server",
     Kind::kDeviceFault, kMps},
    {911, "cudaErrorExternalDevice",
     "an async error has occured in external entity outside of CUDA", Kind::kDeviceFault,
     kNewProcess},
    {999, "cudaErrorUnknown", "unknown error", Kind::kDeviceLost, kBroken},
}};

// The CPU's allocator, the caching allocator, the driver and cuBLAS each say it in their own words.
constexpr std::array<std::string_view, 3> kOutOfMemoryWords{
    "can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED"};
constexpr std::array<std::string_view, 2> kRefusedWords{"CUBLAS_STATUS_INVALID_VALUE",
                                                        "CUBLAS_STATUS_NOT_SUPPORTED"};
constexpr std::array<std::string_view, 3> kLostWords{"GPU is lost", "fallen off the bus", "Xid 79"};
constexpr std::string_view kCudaError = "CUDA error: ";

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}
template <std::size_t N>
bool contains_any(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return contains(text, word); });
}

/// "20.00 MiB", "512 bytes" at the beginning of a text.
std::optional<std::uint64_t> parse_size(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  constexpr std::array<std::pair<std::string_view, double>, 5> kUnits = {
      {{"bytes", 1},
       {"KiB", 1024.0},
       {"MiB", 1048576.0},
       {"GiB", 1073741824.0},
       {"TiB", 1099511627776.0}}};
  for (const auto& [name, factor] : kUnits) {
    if (unit.starts_with(name) && value * factor < 1e18)
      return static_cast<std::uint64_t>(value * factor);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> size_after(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  return parse_size(text.substr(at + words.size()));
}

// "… in use. 63.28 GiB allowed; Of the …"
std::optional<std::uint64_t> size_before(std::string_view text, std::string_view words) {
  const std::size_t end = text.find(words);
  if (end == std::string_view::npos) return std::nullopt;
  const std::size_t begin = text.rfind(". ", end);
  return parse_size(begin == std::string_view::npos ? text : text.substr(begin + 2));
}

std::string format_size(std::uint64_t bytes) {
  std::array<char, 32> text{};
  const double gib = static_cast<double>(bytes) / 1073741824.0;
  if (gib >= 1) {
    std::snprintf(text.data(), text.size(), "%.2f GiB", gib);
  } else {
    std::snprintf(text.data(), text.size(), "%.1f MiB", gib * 1024);
  }
  return text.data();
}

/// "2.00 GiB needed, 12.1 MiB free of 79.10 GiB, others hold 70.00 GiB"
std::string describe(const MemoryShortage& memory) {
  std::string text;
  if (memory.needed) text += format_size(*memory.needed) + " needed";
  if (memory.free) text += (text.empty() ? "" : ", ") + format_size(*memory.free) + " free";
  if (memory.free && memory.total) text += " of " + format_size(*memory.total);
  if (const auto others = memory.others(); others.value_or(0) > 0)
    text += ", other processes hold " + format_size(*others);
  if (memory.allowed) text += ", this one may hold " + format_size(*memory.allowed);
  return text;
}

Error shortage(std::string_view doing, std::string_view text) {
  const MemoryShortage memory = parse_memory_shortage(text);
  const Kind kind = memory.is_of_others() ? Kind::kDeviceBusy : Kind::kOutOfMemory;
  std::string facts = describe(memory);
  if (facts.empty()) facts = text;
  return make_error(
      ErrorCode::kUnavailable,
      std::string(device_error_prefix(kind)) + " while " + std::string(doing) + ": " +
          (kind == Kind::kDeviceBusy ? "out of the memory that others leave: " : "") + facts +
          "; " +
          (kind == Kind::kDeviceBusy
               ? "it is waited for; `nvidia-smi` shows who holds it, evaluate.device names another"
               : std::string(kLess)));
}

/// The digits that follow `words`.
std::string number_after(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = text.substr(at + words.size());
  return std::string(rest.substr(0, std::min(rest.find_first_not_of("0123456789"), rest.size())));
}

/// "600 s"; "" if the text does not say.
std::string limit_of(std::string_view text) {
  std::string milliseconds = number_after(text, "Timeout(ms)=");
  if (milliseconds.empty()) milliseconds = number_after(text, "monitoredBarrier in ");
  if (milliseconds.empty()) milliseconds = number_after(text, "Timed out waiting ");
  if (milliseconds.size() > 3 && milliseconds.ends_with("000"))
    return milliseconds.substr(0, milliseconds.size() - 3) + " s";
  if (!milliseconds.empty()) return milliseconds + " ms";
  const std::string seconds = number_after(text, "Timed out after ");
  return seconds.empty() ? "" : seconds + " s";
}

/// "rank 3", "ranks 1, 3"; "" if the text does not say.
std::string missing_ranks(std::string_view text) {
  const std::size_t end = text.find(" failed to pass");
  if (end == std::string_view::npos) return "";
  const std::string_view before = text.substr(0, end);
  const std::size_t many = before.rfind("Ranks ");
  const std::size_t one = before.rfind("Rank ");
  if (many != std::string_view::npos) return "ranks " + std::string(before.substr(many + 6));
  return one == std::string_view::npos ? "" : "rank " + std::string(before.substr(one + 5));
}

bool is_time_out(std::string_view text) {
  return contains(text, "collective operation timeout") || contains(text, "monitoredBarrier") ||
         contains(text, "waiting for clients") ||
         (contains(text, "Timed out waiting ") && contains(text, "ms for"));
}

}  // namespace

std::string_view device_error_prefix(DeviceErrorKind kind) {
  switch (kind) {
    case Kind::kOutOfMemory:
      return "out of memory";
    case Kind::kDeviceFault:
      return "device fault";
    case Kind::kDeviceLost:
      return "device lost";
    case Kind::kDeviceBusy:
      return "device busy";
    case Kind::kNoDevice:
      return "no CUDA device";
    case Kind::kRefusedCall:
      break;
  }
  return "";
}

const CudaError* find_cuda_error(int code) {
  const auto found = std::ranges::find(kTable, code, &CudaError::code);
  return found == kTable.end() ? nullptr : &*found;
}

const CudaError* find_cuda_error(std::string_view text) {
  for (const CudaError& error : kTable) {
    // The name ends there: cudaErrorAssert is not found in a longer one.
    const std::size_t at = text.find(error.name);
    const std::size_t end = at + error.name.size();
    const bool named =
        at != std::string_view::npos &&
        (end == text.size() || text.substr(end, 1).find_first_of("`'\" ,.;:()\n") == 0);
    if (named) return &error;
  }
  const std::size_t at = text.find(kCudaError);
  if (at == std::string_view::npos) return nullptr;
  const std::string_view said = text.substr(at + kCudaError.size());
  const auto found =
      std::ranges::find_if(kTable, [&](const CudaError& e) { return said.starts_with(e.said); });
  return found == kTable.end() ? nullptr : &*found;
}

std::optional<std::uint64_t> MemoryShortage::others() const {
  if (!free || !total || !own || *free + *own > *total) return std::nullopt;
  return *total - *free - *own;
}

bool MemoryShortage::is_of_others() const {
  // The sizes are printed to 0.01 GiB, and drivers and displays keep a little for themselves.
  constexpr std::uint64_t kWorthNaming = std::uint64_t{256} << 20U;
  const bool limited = allowed && needed && own && *own + *needed > *allowed;
  return needed && !limited && others().value_or(0) >= kWorthNaming && *free + *others() >= *needed;
}

MemoryShortage parse_memory_shortage(std::string_view text) {
  MemoryShortage memory;
  memory.needed = size_after(text, "Tried to allocate ");
  if (!memory.needed) memory.needed = size_after(text, "you tried to allocate ");
  memory.total = size_after(text, "total capacity of ");
  memory.free = size_after(text, " of which ");
  memory.own = size_after(text, "this process has ");
  memory.allowed = size_before(text, " allowed; ");
  return memory;
}

Error device_error(std::string_view doing, std::string_view text, std::optional<int> code) {
  const std::string what(doing);
  const std::string said(text);
  if (contains_any(text, kOutOfMemoryWords) || code == 2) return shortage(doing, text);
  if (contains_any(text, kLostWords))
    return make_error(ErrorCode::kUnavailable,
                      "device lost while " + what + ": " + said + "; " + std::string(kBroken));
  const CudaError* known = code ? find_cuda_error(*code) : nullptr;
  if (known == nullptr) known = find_cuda_error(text);
  const bool of_device = contains(text, kCudaError) || code.has_value() || known != nullptr;
  const bool refused =
      contains_any(text, kRefusedWords) || (known != nullptr && known->kind == Kind::kRefusedCall);
  if (!of_device || refused) return make_error(ErrorCode::kInternal, what + ": " + said);
  // A failure that nobody knows is not to be trusted either.
  const Kind kind = known == nullptr ? Kind::kDeviceFault : known->kind;
  const std::string name =
      known == nullptr ? "" : std::string(known->name) + " (" + std::to_string(known->code) + "): ";
  const std::string remedy(known == nullptr ? kNewProcess : known->remedy);
  return make_error(kind == Kind::kNoDevice ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable,
                    std::string(device_error_prefix(kind)) + " while " + what + ": " + name + said +
                        "; " + remedy);
}

bool is_collective_error(std::string_view text) {
  return contains(text, "NCCL error") || contains(text, "NCCL Error") ||
         contains(text, "ncclInvalid") || contains(text, "ncclSystemError") ||
         contains(text, "ncclUnhandled") || is_time_out(text);
}

Error collective_error(std::string_view doing, std::string_view text) {
  const std::string said(text);
  if (!is_time_out(text)) {
    return make_error(
        ErrorCode::kUnavailable,
        "NCCL error while " + std::string(doing) + ": " + said +
            "; check the library (the NCCL of the torch wheel, no other on LD_LIBRARY_PATH), the "
            "interface (NCCL_SOCKET_IFNAME names one that all ranks have) and the network (can the "
            "ranks reach MASTER_ADDR:MASTER_PORT?); NCCL_DEBUG=INFO tells more");
  }
  const std::string limit = limit_of(text);
  const std::string missing = missing_ranks(text);
  return make_error(ErrorCode::kUnavailable,
                    "distributed time-out while " + std::string(doing) + ": " +
                        (missing.empty() ? "a rank that is not named" : missing) + " did not come" +
                        (limit.empty() ? "" : " within " + limit) + ": " + said +
                        "; is its process alive, and does it evaluate the same tasks?");
}

std::string no_device_text(bool built_with_cuda, bool driver_loaded, const char* visible_devices) {
  std::string text = "no CUDA device: ";
  if (!built_with_cuda) {
    text += "this evaluator was built without a CUDA compiler, for the CPU only";
  } else if (!driver_loaded) {
    text +=
        "no NVIDIA driver is loaded (/proc/driver/nvidia is not there; in a container: start it "
        "with --gpus)";
  } else {
    text += "an NVIDIA driver is loaded, but no GPU is visible (`nvidia-smi` lists them)";
  }
  if (visible_devices != nullptr) {
    text += "; CUDA_VISIBLE_DEVICES is \"" + std::string(visible_devices) + "\"";
    if (*visible_devices == 0) text += ", which hides all of them";
  }
  return text;
}

}  // namespace evalcar::weights
