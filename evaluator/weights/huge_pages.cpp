#include "evaluator/weights/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace evalcar::weights {
namespace {

constexpr std::uintptr_t kHugePage = std::uintptr_t{1} << 21;

}  // namespace

// Those alone that lie within the memory as a whole: at its ends are others' bytes.
void ask_for_huge_pages(const at::Tensor& memory) {
  if (!memory.defined() || !memory.is_cpu() || memory.nbytes() < kHugePage) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.const_data_ptr());
  const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t last = (begin + memory.nbytes()) / kHugePage * kHugePage;
  if (first >= last) return;
  // A hint: where it is refused there is nothing to be done, and nothing is wrong.
  (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

}  // namespace evalcar::weights
