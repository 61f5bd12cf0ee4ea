#include "evaluator/weights/torch_error.h"

#include <catch2/catch_test_macros.hpp>

using evalcar::Error;
using evalcar::ErrorCode;
using evalcar::weights::torch_error;

TEST_CASE("a fault of the device is told as such") {
  for (const char* text :
       {"CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be "
        "asynchronously reported",
        "CUDA error: unspecified launch failure",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`"}) {
    const Error error = torch_error("generating", text);
    CHECK(error.code == ErrorCode::kUnavailable);
    CHECK(error.message.starts_with("device fault while generating: "));
    CHECK(error.message.find("CUDA error: ") != std::string::npos);
  }
}

TEST_CASE("an allocation that failed is out of memory, whoever says so, and no lost device") {
  for (const char* text :
       {"CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.1 GiB",
        "CUDA error: out of memory", "DefaultCPUAllocator: can't allocate memory: you tried to",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"}) {
    const Error error = torch_error("generating", text);
    CHECK(error.code == ErrorCode::kUnavailable);
    CHECK(error.retryable);
    CHECK(error.message.starts_with("out of memory while generating: "));
    CHECK(error.message.find("device") == std::string::npos);
  }
}

TEST_CASE("a mistake of the program, or a call that the device refuses, stays an internal error") {
  for (const char* text :
       {"The size of tensor a (3) must match the size of tensor b (4)",
        "CUDA error: invalid configuration argument",
        "CUDA error: no kernel image is available for execution on the device"}) {
    const Error error = torch_error("generating", text);
    CHECK(error.code == ErrorCode::kInternal);
    CHECK(error.message == std::string("generating: ") + text);
  }
}

TEST_CASE("an error between devices is told as such") {
  CHECK(torch_error("gathering", "NCCL error in: x.cpp:1, unhandled cuda error")
            .message.starts_with("NCCL error while gathering: "));
}
