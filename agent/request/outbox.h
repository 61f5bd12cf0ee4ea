// A command's side of the requests: leaves one in the folder and waits for the answer.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "agent/request/request.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::request {

struct AskOptions {
  /// How long the agent may take to take it up, and then again to answer.
  std::chrono::milliseconds patience{10'000};
  /// False: nobody holds the database any more. Asked now and then.
  std::function<bool()> agent_there;
  /// Waits a little; a test's clock moves here.
  std::function<void(std::chrono::milliseconds)> pause;
};

/// Asks the agent that holds the database. Errors: kNotFound: it is gone, and so is the request
/// (the caller may open the database itself); kUnavailable: it did not take the request up, which
/// was withdrawn, or took it and did not answer (the message says which); kIo: the request could
/// not be written.
Result<Answer> ask(FileSystem& files, const Clock& clock, const std::string& folder,
                   const Request& request, const AskOptions& options);

}  // namespace evalcar::request
