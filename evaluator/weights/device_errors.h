// What an error of a device, or between devices, means: is the call, the process, the device or its
// neighbour at fault, and what can a person do about it. Pure, and free of libtorch: all of it is
// tested without a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "store/base/result.h"

namespace evalcar::weights {

/// Who is at fault, and so what helps.
enum class DeviceErrorKind {
  kOutOfMemory,  ///< less at once
  kDeviceFault,  ///< the context is poisoned: another process
  kDeviceLost,   ///< the device is broken: a person, or another device
  kDeviceBusy,   ///< others have it: later
  kNoDevice,     ///< there is none, or none that this process may use: the configuration
  kRefusedCall,  ///< our own mistake; the process goes on
};
/// How messages of errors of that kind begin: "out of memory", "device fault", "device lost",
/// "device busy", "no CUDA device"; "" for a refused call. job_error_kind() reads it.
std::string_view device_error_prefix(DeviceErrorKind kind);

/// A row of the table of CUDA's errors.
struct CudaError {
  int code = 0;           ///< cudaError_t
  std::string_view name;  ///< "cudaErrorIllegalAddress"
  std::string_view said;  ///< cudaGetErrorString()
  DeviceErrorKind kind = DeviceErrorKind::kDeviceFault;
  std::string_view remedy;  ///< for people
};
/// Null for a code that says nothing about the device.
const CudaError* find_cuda_error(int code);
/// In libtorch's words: "CUDA error: <said>…" or with the name. Null if there is none in it.
const CudaError* find_cuda_error(std::string_view text);

/// What libtorch's allocator says when the device is full. Bytes; absent where it does not say.
struct MemoryShortage {
  std::optional<std::uint64_t> needed;
  std::optional<std::uint64_t> free;
  std::optional<std::uint64_t> total;
  std::optional<std::uint64_t> own;      ///< held by this process, its context included
  std::optional<std::uint64_t> allowed;  ///< of that, by a limit of its own
  /// What other processes hold; absent where it cannot be told.
  std::optional<std::uint64_t> others() const;
  /// It would fit if the others had nothing, and they have 256 MiB at least. Never where this
  /// process came to its own limit, whatever others have.
  bool is_of_others() const;
};
MemoryShortage parse_memory_shortage(std::string_view text);

/// The error for what libtorch threw while `doing` ("generating"); `text` is the exception's
/// without its backtrace, `code` the cudaError_t of a c10::AcceleratorError. The message begins as
/// device_error_prefix() says, and ends with what can be done. kUnavailable but for a refused call
/// (kInternal) and a device that is not there (kInvalidArgument).
Error device_error(std::string_view doing, std::string_view text, std::optional<int> code);

/// Whether the text is one of NCCL's, or of a collective that nobody answered.
bool is_collective_error(std::string_view text);
/// "NCCL error while …", or "distributed time-out while …" with its value and the missing rank.
Error collective_error(std::string_view doing, std::string_view text);

/// Why no GPU can be used: "no CUDA device: …", with the driver, CUDA_VISIBLE_DEVICES (null: not
/// set) and what to look at.
std::string no_device_text(bool built_with_cuda, bool driver_loaded, const char* visible_devices);

/// The attentions that may be asked for, for messages: "flash_attention_2, sdpa or eager".
inline constexpr std::string_view kAttentionNames = "flash_attention_2, sdpa or eager";

}  // namespace evalcar::weights
