// Places at which a test can have this process killed, by name, as a power cut or the OOM killer
// would: in the order of a publication after_claim, after_load, mid_eval, after_eval, after_commit,
// after_tmp_write, after_rename, after_line, after_mark (tests/faults/test_state.py); and
// after_interim (tests/e2e/test_anytime.py).
#pragma once

#include <string_view>

namespace evalcar {

/// SIGKILL to this very process if the environment has EVALCAR_CRASH_AT=<name>[:n] and this is the
/// n-th time (from 1, the default) that it comes by here. Thread-safe. Does nothing unless built
/// with the CMake option EVALCAR_CRASH_POINTS, which the preset `release` leaves off.
void crash_point(std::string_view name);

}  // namespace evalcar
