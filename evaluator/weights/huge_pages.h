// Memory that is read from front to back for every token is read faster through few page tables.
#pragma once

#include <ATen/core/Tensor.h>

namespace evalcar::weights {

/// Asks the kernel for huge pages under the memory of a contiguous tensor of this host, which
/// nothing was written to yet. The tensor takes no more memory; where the kernel has none to give
/// (or transparent_hugepage is "never") all is as before. Nothing for a tensor of another device,
/// or none.
void ask_for_huge_pages(const at::Tensor& memory);

}  // namespace evalcar::weights
