// The commands with their options. Parsing only fills in the option structs; the work is done after
// CLI11's objects are gone, so that the resident agent does not carry them.
#pragma once

#include <functional>

#include "store/base/file_system.h"

namespace CLI {
class App;
}  // namespace CLI

namespace evalcar::cli {

/// The work of the command that was asked for; its exit code.
using Action = std::function<int(FileSystem&)>;

// Each adds a command to `app`. If that is the one asked for, it fills `action`, which must outlive
// the parsing.

void add_run(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_init(CLI::App& app, Action& action);

void add_eval(CLI::App& app, Action& action);
void add_merge(CLI::App& app, Action& action);
/// Not for people: one merge that the server was asked for, in a process of its own.
void add_merge_request(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);

void add_results(CLI::App& app, Action& action);
void add_status(CLI::App& app, Action& action);
void add_retry(CLI::App& app, Action& action);
void add_backfill(CLI::App& app, Action& action);
void add_cancel(CLI::App& app, Action& action);
void add_pin(CLI::App& app, Action& action);
void add_prune(CLI::App& app, Action& action);
void add_push(CLI::App& app, Action& action);

void add_tasks(CLI::App& app, Action& action);
void add_models(CLI::App& app, Action& action);
void add_score(CLI::App& app, Action& action);

}  // namespace evalcar::cli
