// Tensors behind which nothing may be read.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <sys/mman.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>

namespace evalcar::testing {

/// A copy of `x`, contiguous, that ends where a page begins that may not be read.
inline at::Tensor before_a_fence(const at::Tensor& x) {
  constexpr std::size_t kPage = 4096;
  const std::size_t bytes = static_cast<std::size_t>(x.numel()) * x.element_size();
  const std::size_t whole = (bytes + kPage - 1) / kPage * kPage;
  void* const pages =
      ::mmap(nullptr, whole + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(pages != MAP_FAILED);
  char* const end = static_cast<char*>(pages) + whole;
  REQUIRE(::mprotect(end, kPage, PROT_NONE) == 0);
  const at::Tensor copy = at::from_blob(
      end - bytes, x.sizes(), [=](void*) { ::munmap(pages, whole + kPage); }, x.scalar_type());
  copy.copy_(x);
  return copy;
}

}  // namespace evalcar::testing
