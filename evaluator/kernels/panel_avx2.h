// What panel_unit.h asks for, by AVX2. No libtorch.
#pragma once

#include "evaluator/kernels/panel_unit.h"

namespace evalcar::kernels {

/// Only for a CPU with AVX2 and fused multiply-adds, of x86-64.
PanelKernels panels_of_avx2();

}  // namespace evalcar::kernels
