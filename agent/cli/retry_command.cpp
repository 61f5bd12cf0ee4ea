#include <thread>

#include "agent/cli/exit_code.h"
#include "agent/cli/small_commands.h"
#include "agent/request/outbox.h"
#include "agent/request/retry.h"
#include "store/state/store.h"

namespace evalcar::cli {
namespace {

/// Done here if nobody holds the database, else asked of the agent that does.
Result<request::Answer> retry(FileSystem& files, const std::string& database, std::int64_t step) {
  const SystemClock clock;
  request::AskOptions options;
  options.agent_there = [&database] { return state::Store::writer_pid(database).has_value(); };
  options.pause = [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); };
  constexpr int kTries = 3;  // the agent may end or start in between
  for (int tries = 1;; ++tries) {
    const auto store = state::Store::open(files, clock, database);
    if (store.has_value()) {
      return request::retry_step(**store, std::nullopt, step, "at the next start");
    }
    if (store.error().code != ErrorCode::kUnavailable) return store.error();
    auto answer =
        request::ask(files, clock, request::folder_of(database), request::Retry{step}, options);
    const bool agent_ended =
        !answer.has_value() && answer.error().code == ErrorCode::kNotFound && tries < kTries;
    if (!agent_ended) return answer;
  }
}

}  // namespace

int run_retry(const DatabaseChoice& database, std::int64_t step, FileSystem& files,
              std::ostream& out, std::ostream& err) {
  const auto complain = [&err](const Error& error, int code) {
    err << "evalcar retry: " << error.message << '\n';
    return code;
  };
  const auto path = choose_database(files, database);
  if (!path.has_value()) {
    const bool none = path.error().code == ErrorCode::kNotFound;
    return complain(path.error(), none ? kExitNotReady : kExitUsage);
  }
  const auto answer = retry(files, *path, step);
  if (!answer.has_value()) return complain(answer.error(), kExitFailed);
  if (answer->outcome == request::Outcome::kFailed) {
    err << "evalcar retry: " << answer->text << '\n';
    return kExitFailed;
  }
  out << answer->text << '\n';
  return answer->outcome == request::Outcome::kNothing ? kExitNotReady : kExitDone;
}

}  // namespace evalcar::cli
