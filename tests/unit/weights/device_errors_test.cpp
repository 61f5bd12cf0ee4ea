#include "evaluator/weights/device_errors.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace evalcar;
using namespace evalcar::weights;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using Kind = DeviceErrorKind;

namespace {

// As torch 2.11 words them.
const std::string kFull =
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
    "which 512.00 MiB is free. Including non-PyTorch memory, this process has 78.50 GiB memory in "
    "use. Of the allocated memory 77.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved";
const std::string kTaken =
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
    "which 512.00 MiB is free. Process 4242 has 70.00 GiB memory in use. Including non-PyTorch "
    "memory, this process has 8.50 GiB memory in use.";
// Of a device that others use, too, by a process that may take 63.28 GiB of it.
const std::string kLimited =
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
    "which 9.10 GiB is free. Process 4242 has 7.00 GiB memory in use. Including non-PyTorch "
    "memory, this process has 63.00 GiB memory in use. 63.28 GiB allowed; Of the allocated memory "
    "61.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.";

std::string cuda(std::string_view said, std::string_view name) {
  return "CUDA error: " + std::string(said) + "\nSearch for `" + std::string(name) +
         "' in https://docs.nvidia.com/cuda for more information.\nCUDA kernel errors might be "
         "asynchronously reported at some other API call";
}

}  // namespace

TEST_CASE("an error is known by its code, by its name and by what CUDA says") {
  struct Row {
    int code;
    std::string_view name;
    std::string_view said;
    Kind kind;
  };
  for (const Row& row : std::array<Row, 7>{{
           {2, "cudaErrorMemoryAllocation", "out of memory", Kind::kOutOfMemory},
           {46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable",
            Kind::kDeviceBusy},
           {100, "cudaErrorNoDevice", "no CUDA-capable device is detected", Kind::kNoDevice},
           {214, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered",
            Kind::kDeviceLost},
           {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered",
            Kind::kDeviceFault},
           {719, "cudaErrorLaunchFailure", "unspecified launch failure", Kind::kDeviceFault},
           {9, "cudaErrorInvalidConfiguration", "invalid configuration argument",
            Kind::kRefusedCall},
       }}) {
    INFO(row.name);
    const CudaError* const by_code = find_cuda_error(row.code);
    REQUIRE(by_code != nullptr);
    CHECK(by_code->name == row.name);
    CHECK(by_code->kind == row.kind);
    CHECK(find_cuda_error(cuda(row.said, row.name)) == by_code);
    CHECK(find_cuda_error("CUDA error: " + std::string(row.said)) == by_code);
    CHECK((row.kind == Kind::kRefusedCall) == by_code->remedy.empty());
  }
  CHECK(find_cuda_error(600) == nullptr);
  CHECK(find_cuda_error("everything is well") == nullptr);
}

TEST_CASE("a poisoned context ends the process, a broken device waits for a person") {
  const Error fault = device_error(
      "generating", cuda("an illegal memory access was encountered", "cudaErrorIllegalAddress"),
      700);
  CHECK(fault.code == ErrorCode::kUnavailable);
  CHECK_THAT(fault.message,
             StartsWith("device fault while generating: cudaErrorIllegalAddress (700): "));
  CHECK_THAT(fault.message, ContainsSubstring("a new one tries again"));

  const Error ecc =
      device_error("generating", "CUDA error: uncorrectable ECC error encountered", {});
  CHECK_THAT(ecc.message,
             StartsWith("device lost while generating: cudaErrorECCUncorrectable (214)"));
  const Error lost =
      device_error("generating", "CUDA error: unspecified launch failure (NVML: GPU is lost)", 719);
  CHECK_THAT(lost.message, StartsWith("device lost while generating: "));
  const Error busy = device_error("loading weights", "whatever", 46);
  CHECK_THAT(busy.message,
             StartsWith("device busy while loading weights: cudaErrorDevicesUnavailable (46)"));
  const Error unknown = device_error("generating", "CUDA error: something new", 7777);
  CHECK_THAT(unknown.message,
             StartsWith("device fault while generating: CUDA error: something new"));
}

TEST_CASE("a mistake of our own is no fault of the device") {
  for (const char* const text :
       {"The size of tensor a (3) must match the size of tensor b (4)",
        "CUDA error: invalid configuration argument",
        "CUDA error: no kernel image is available for execution on the device",
        "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx(...)`"}) {
    const Error error = device_error("generating", text, {});
    CHECK(error.code == ErrorCode::kInternal);
    CHECK(error.message == std::string("generating: ") + text);
  }
}

TEST_CASE("a full device says what was needed and free, and what to lower") {
  const Error error = device_error("generating", kFull, {});

  CHECK(error.code == ErrorCode::kUnavailable);
  CHECK(error.message ==
        "out of memory while generating: 2.00 GiB needed, 512.0 MiB free of 79.10 GiB, other "
        "processes hold 102.4 MiB; lower evaluate.max_pixels or evaluate.batch_size, or use a GPU "
        "with more memory or more GPUs");
  CHECK(
      device_error("generating", "CUDA error: out of memory", 2)
          .message.starts_with("out of memory while generating: CUDA error: out of memory; lower"));
  CHECK_THAT(device_error("generating",
                          "DefaultCPUAllocator: can't allocate memory: you tried to allocate "
                          "1048576 bytes. Error code 12",
                          {})
                 .message,
             StartsWith("out of memory while generating: 1.0 MiB needed; lower"));
}

TEST_CASE("a device that others fill is waited for") {
  const Error error = device_error("generating", kTaken, {});

  CHECK_THAT(
      error.message,
      StartsWith(
          "device busy while generating: out of the memory that others leave: 2.00 GiB needed"));
  CHECK_THAT(error.message, ContainsSubstring("other processes hold 70.10 GiB"));
  CHECK_FALSE(parse_memory_shortage(kFull).is_of_others());
  CHECK(parse_memory_shortage(kTaken).is_of_others());
  CHECK_FALSE(parse_memory_shortage("Tried to allocate x").needed.has_value());
}

TEST_CASE("a process that came to its own limit waits for nobody") {
  const Error error = device_error("generating", kLimited, {});

  CHECK_THAT(error.message, StartsWith("out of memory while generating: 2.00 GiB needed, 9.10 GiB "
                                       "free of 79.10 GiB, other processes hold 7.00 GiB, this one "
                                       "may hold 63.28 GiB; lower evaluate.max_pixels"));
  // Below its limit it is the others who leave too little.
  std::string below = kTaken;
  below += " 63.28 GiB allowed; Of the allocated memory 8.00 GiB is allocated by PyTorch";
  CHECK(parse_memory_shortage(below).is_of_others());
  CHECK(parse_memory_shortage(below).allowed == parse_memory_shortage(kLimited).allowed);
}

TEST_CASE("an error of NCCL names the library, the interface and the network") {
  const std::string text = "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error";
  REQUIRE(is_collective_error(text));
  const Error error = collective_error("gathering answers", text);
  CHECK_THAT(error.message, StartsWith("NCCL error while gathering answers: " + text));
  CHECK_THAT(error.message, ContainsSubstring("the library"));
  CHECK_THAT(error.message, ContainsSubstring("NCCL_SOCKET_IFNAME"));
  CHECK_THAT(error.message, ContainsSubstring("the network"));
  CHECK_FALSE(is_collective_error(kFull));
}

TEST_CASE("a distributed time-out tells its value and the rank that is missing") {
  const std::string barrier = "Rank 0: Ranks 1, 3 failed to pass monitoredBarrier in 600000 ms";
  REQUIRE(is_collective_error(barrier));
  CHECK_THAT(
      collective_error("gathering answers", barrier).message,
      StartsWith("distributed time-out while gathering answers: ranks 1, 3 did not come within "
                 "600 s: "));
  CHECK_THAT(
      collective_error("x", "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 1500 ms").message,
      StartsWith("distributed time-out while x: rank 2 did not come within 1500 ms"));
  const std::string watchdog =
      "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, "
      "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.";
  CHECK_THAT(collective_error("x", watchdog).message,
             ContainsSubstring("a rank that is not named did not come within 600 s"));
  const std::string store = "Timed out after 61 seconds waiting for clients. 1/2 clients joined.";
  REQUIRE(is_collective_error(store));
  CHECK_THAT(collective_error("x", store).message, ContainsSubstring("within 61 s"));
}

TEST_CASE("without a GPU the driver and the variable that hides it are named") {
  CHECK(no_device_text(true, false, nullptr) ==
        "no CUDA device: no NVIDIA driver is loaded (/proc/driver/nvidia is not there; in a "
        "container: start it with --gpus)");
  CHECK(no_device_text(true, true, "99") ==
        "no CUDA device: an NVIDIA driver is loaded, but no GPU is visible (`nvidia-smi` lists "
        "them); CUDA_VISIBLE_DEVICES is \"99\"");
  CHECK_THAT(no_device_text(true, true, ""), ContainsSubstring("is \"\", which hides all of them"));
  CHECK_THAT(no_device_text(false, true, nullptr),
             ContainsSubstring("built without a CUDA compiler"));
}
