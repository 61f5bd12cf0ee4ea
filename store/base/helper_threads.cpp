#include "store/base/helper_threads.h"

#include <system_error>

namespace evalcar {

HelperThreads::HelperThreads(std::size_t count, const std::function<void()>& work) {
  threads_.reserve(count);
  try {
    for (std::size_t i = 0; i < count; ++i) threads_.emplace_back(work);
  } catch (const std::system_error&) {
    return;  // no more of them
  }
}

}  // namespace evalcar
