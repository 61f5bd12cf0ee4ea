#include "evaluator/kernels/tile_unit.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace evalcar::kernels {
namespace {

#if defined(__x86_64__)

// CPUID leaf 7 (Intel's manual, volume 2): sub-leaf 0 EDX bits 22 and 24, sub-leaf 1 EAX bit 5.
bool cpu_has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & (1U << 22U)) == 0 || (d & (1U << 24U)) == 0) return false;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0 || (a & (1U << 5U)) == 0) return false;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

// Linux gives a process the tiles' registers only when it asks (Documentation/arch/x86/xstate.rst).
bool system_allows_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#else

bool cpu_has_tiles() { return false; }
bool system_allows_tiles() { return false; }

#endif

}  // namespace

bool has_tile_unit() {
  static const bool has = cpu_has_tiles() && system_allows_tiles();
  return has;
}

}  // namespace evalcar::kernels
