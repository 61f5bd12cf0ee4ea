// What panel_unit.h asks for, by AVX-512. No libtorch.
#pragma once

#include "evaluator/kernels/panel_unit.h"

namespace evalcar::kernels {

/// Only for a CPU with AVX-512 (avx512f), of x86-64.
PanelKernels panels_of_avx512();

}  // namespace evalcar::kernels
