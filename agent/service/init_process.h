// As process 1 of a container: there is no init that buries orphans and hands signals on.
#pragma once

#include <optional>

namespace evalcar::agent_service {

/// Where this is process 1 it splits: the child goes on (nothing is returned there), and the parent
/// becomes a small init, which buries whatever is handed to it, passes SIGTERM, SIGINT, SIGHUP,
/// SIGQUIT, SIGUSR1 and SIGUSR2 on to the child, and returns the exit code of the process when the
/// child has ended (128 + the signal, if one ended it). Anywhere else nothing happens. Before any
/// thread, and before files are opened.
std::optional<int> become_init_if_first();

/// The same, whatever the number of this process: for tests.
std::optional<int> become_init();

}  // namespace evalcar::agent_service
