#include "evaluator/weights/lasting_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <cstddef>

#include "evaluator/weights/huge_pages.h"

namespace evalcar::weights {
namespace {

constexpr std::int64_t kLarge = std::int64_t{2} << 20U;

}  // namespace

at::Tensor lasting_memory(std::int64_t bytes, at::Device device) {
  const at::TensorOptions options = at::TensorOptions().dtype(at::kByte).device(device);
  if (!device.is_cpu() || bytes < kLarge) return at::empty({bytes}, options);
  const auto size = static_cast<std::size_t>(bytes);
  void* const mapped =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return at::empty({bytes}, options);  // tells what is missing
  at::Tensor memory =
      at::from_blob(mapped, {bytes}, [size](void* begin) { (void)munmap(begin, size); }, options);
  ask_for_huge_pages(memory);
  return memory;
}

}  // namespace evalcar::weights
