// How the process ends where memory runs out and nobody could go on without.
#pragma once

namespace evalcar::cli {

/// From now on a std::bad_alloc that nobody catches, in any thread, ends the process at once with
/// kExitFailed and one sentence on standard error: no core file of a machine that has no memory.
/// Other uncaught exceptions end it as before.
void end_plainly_without_memory();

}  // namespace evalcar::cli
