#include "evaluator/engine/host_pages.h"

#include <cstdlib>  // defines __GLIBC__ where it is that

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace evalcar::engine {

#ifdef __GLIBC__

void keep_freed_pages() {
  constexpr int kNever = -1;
  mallopt(M_MMAP_MAX, 0);  // no mapping of its own for a large block
  mallopt(M_TRIM_THRESHOLD, kNever);
}

void give_back_freed_pages() { malloc_trim(0); }

#else

void keep_freed_pages() {}
void give_back_freed_pages() {}

#endif

}  // namespace evalcar::engine
