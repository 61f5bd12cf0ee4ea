// Who else uses a GPU, and whether it is still there: asked of the driver's management library,
// which is opened at run time, for most machines that build this have none. Asking makes no context
// on the device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/base/result.h"

namespace evalcar::engine {

struct GpuProcess {
  std::int64_t pid = 0;
  std::optional<std::uint64_t> used_bytes;  ///< absent where the driver does not tell
};

struct GpuUse {
  bool lost = false;                  ///< the driver has lost it: nothing else is known
  std::vector<GpuProcess> processes;  ///< that compute on it, this one too if it does
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
};

/// Not thread-safe.
class Nvml {
 public:
  /// kNotFound: the library or a function of it is not there; kUnavailable: it cannot reach the
  /// driver.
  static Result<Nvml> open(const std::string& library = "libnvidia-ml.so.1");
  Nvml(Nvml&&) noexcept;
  Nvml& operator=(Nvml&&) noexcept;
  ~Nvml();

  std::string driver_version() const;
  /// `uuid`: "GPU-…" or "MIG-…".
  Result<GpuUse> use_of(const std::string& uuid) const;

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

/// Refuses a GPU that another process computes on: kUnavailable "device busy: …" with who, how much
/// they hold, and how to take it all the same; or, where the other one is an evaluator, too, how
/// two runs get along on one GPU. `own_pid` is not another.
Status check_not_shared(const std::string& device, const GpuUse& use, std::int64_t own_pid);

/// Where the control pipe of an MPS daemon is, by the environment's CUDA_MPS_PIPE_DIRECTORY (null:
/// not set); "" if none listens there. Behind MPS a fault of ours ends the trainer's context.
std::string find_mps_pipe(const char* pipe_directory);

}  // namespace evalcar::engine
