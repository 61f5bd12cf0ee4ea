#include "agent/cli/ask_agent.h"

#include <thread>

#include "agent/cli/exit_code.h"
#include "agent/request/outbox.h"

namespace evalcar::cli {

Result<request::Answer> do_or_ask(FileSystem& files, const Clock& clock,
                                  const std::string& database, const request::Request& request,
                                  const std::function<request::Answer(state::Store&)>& here) {
  request::AskOptions options;
  options.agent_there = [&database] { return state::Store::writer_pid(database).has_value(); };
  options.pause = [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); };
  constexpr int kTries = 3;  // the agent may end or start in between
  for (int tries = 1;; ++tries) {
    // Its agent may have been told to trust that file system; it is there, so it was.
    const auto store =
        state::Store::open(files, clock, database, {.allow_network_file_system = true});
    if (store.has_value()) return here(**store);
    if (store.error().code != ErrorCode::kUnavailable) return store.error();
    auto answer = request::ask(files, clock, request::folder_of(database), request, options);
    const bool agent_ended =
        !answer.has_value() && answer.error().code == ErrorCode::kNotFound && tries < kTries;
    if (!agent_ended) return answer;
  }
}

int run_request(const std::string& name, const DatabaseChoice& database,
                const request::Request& request,
                const std::function<request::Answer(state::Store&)>& here, FileSystem& files,
                const Clock& clock, std::ostream& out, std::ostream& err) {
  const auto complain = [&](const std::string& message, int code) {
    err << "evalcar " << name << ": " << message << '\n';
    return code;
  };
  const auto path = choose_database(files, database);
  if (!path.has_value()) {
    const bool none = path.error().code == ErrorCode::kNotFound;
    return complain(path.error().message, none ? kExitNotReady : kExitUsage);
  }
  bool done = false;
  while (true) {
    const auto answer = do_or_ask(files, clock, *path, request, here);
    if (!answer.has_value()) return complain(answer.error().message, kExitFailed);
    if (answer->outcome == request::Outcome::kFailed) return complain(answer->text, kExitFailed);
    done |= answer->outcome == request::Outcome::kDone;
    out << answer->text << '\n';
    if (!answer->more) return done ? kExitDone : kExitNotReady;
  }
}

}  // namespace evalcar::cli
