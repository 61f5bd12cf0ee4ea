// Commands that change something: done here if nobody holds the database, else asked of the agent
// that does.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "agent/cli/database_choice.h"
#include "agent/request/request.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/state/store.h"

namespace evalcar::cli {

/// Does what is asked, wherever it can be done; an agent may start or end meanwhile. `here`: how it
/// is done without an agent.
Result<request::Answer> do_or_ask(FileSystem& files, const Clock& clock,
                                  const std::string& database, const request::Request& request,
                                  const std::function<request::Answer(state::Store&)>& here);

/// The same for a whole command: chooses the database, asks until there is nothing more, prints the
/// answers, and gives the exit code. `name`: of the command, for messages.
int run_request(const std::string& name, const DatabaseChoice& database,
                const request::Request& request,
                const std::function<request::Answer(state::Store&)>& here, FileSystem& files,
                const Clock& clock, std::ostream& out, std::ostream& err);

}  // namespace evalcar::cli
