// The command line of `evalcar` (design.md, "Command line": a contract).
#pragma once

namespace evalcar::cli {

/// Parses, runs the command and returns its exit code: 0 done, 1 failed, 2 usage or configuration,
/// 3 nothing to do or not ready, 4 partly done.
int run_cli(int argc, char** argv);

}  // namespace evalcar::cli
