#include "agent/cli/out_of_memory.h"

#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

#include "agent/cli/exit_code.h"

namespace evalcar::cli {
namespace {

std::terminate_handler earlier = nullptr;

/// Allocates nothing: there is nothing to allocate from.
[[noreturn]] void end_process() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    constexpr std::string_view kWords = "evalcar: out of memory\n";
    (void)!::write(STDERR_FILENO, kWords.data(), kWords.size());
    ::_exit(kExitFailed);
  } catch (...) {  // NOLINT(bugprone-empty-catch): said by the earlier handler
  }
  if (earlier != nullptr) earlier();
  std::abort();
}

}  // namespace

void end_plainly_without_memory() { earlier = std::set_terminate(end_process); }

}  // namespace evalcar::cli
